"""The examples of examples/python run as they are, and the one that trains survives preemption."""
import os
import re
import subprocess
import sys
import threading
import unittest

from rig import poll
from sdk_rig import ROOT, SdkTest, billow

EXAMPLES = os.path.join(ROOT, "examples/python")


class Examples(SdkTest):
    def example(self, name, *args, timeout=150):
        done = self.python(os.path.join(EXAMPLES, name), *args, timeout=timeout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_hello(self):
        out = self.example("hello.py")
        self.assertIn("one call: 49\nmany calls: 332833500\nhalf a GPU on ", out)
        self.assertIn("an exception from the worker: can't multiply", out)

    def test_images(self):
        lines = sorted(self.example("images.py").split("\n"))
        self.assertEqual(len(lines), 21)
        self.assertIn("010.pgm 0.47", lines)

    def test_model(self):
        out = self.example("model.py")
        self.assertIn("the worker", out)
        self.assertRegex(out, r"model\.Model-\w+-\w+: \$\d")

    def test_serve(self):
        self.assertEqual(
            self.example("serve.py").splitlines(),
            [
                '{"sum": 5}',
                "['data:', '0', 'data:', '1']",
                '{"path": "/some/page", "method": "GET"}',
                "False",
            ],
        )

    def test_group(self):
        out = self.example("group.py")
        self.assertIn("sample 0\nsample 1\ncost {'trainer'", out)

    def test_sweep(self):
        out = self.example("sweep.py")
        self.assertIn("{'lr': 0.01, 'seed': 1} loss of lr=0.01 seed=1: 10", out)
        self.assertIn("all done", out)


class Training(SdkTest):
    """A real PyTorch training through a function, on one simulated GPU."""

    options = {"sim": "1xH100"}

    @classmethod
    def setUpClass(cls):
        probe = [sys.executable, "-c", "import torch"]
        if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest("PyTorch is missing: apt install python3-torch")
        super().setUpClass()

    def start(self, checkpoint, steps):
        environment = {**self.rig.environment, "PYTHONPATH": os.path.join(ROOT, "sdk/python/src")}
        process = subprocess.Popen(
            [sys.executable, os.path.join(EXAMPLES, "train.py"), checkpoint, str(steps)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.rig.files,
            env=environment,
        )
        self.rig.started.append(process)
        poll(lambda: os.path.exists(checkpoint) or process.poll() is not None, "a checkpoint", 120)
        return process

    def finish(self, process):
        out = process.communicate(timeout=360)[0]
        self.assertEqual(process.returncode, 0, out)
        found = re.search(r"from step (\d+) to (\d+): loss ([\d.]+)\nattempts (\d+)", out)
        self.assertIsNotNone(found, out)
        return int(found[1]), float(found[3]), int(found[4])

    def test_preempted_and_goes_on(self):
        process = self.start(self.rig.file("preempted.pt"), 12_000)
        # Somebody who pays the full price needs the only GPU.
        taker = billow.submit("sleep 1", gpus=1)
        taker.wait(60)
        first, loss, _ = self.finish(process)
        self.assertLess(loss, 0.01)
        replicas = [j for j in self.client.jobs("all") if "billow.endpoint" in j["labels"]]
        self.assertTrue(
            any(float(j.get("suspended_s") or 0) > 0 or j["attempt"] > 1 for j in replicas)
            or first > 0
            or len(replicas) > 1,
            "it gave way",
        )

    def test_a_lost_worker_continues_from_the_checkpoint(self):
        process = self.start(self.rig.file("lost.pt"), 12_000)
        workers = [p for p, line in self.rig.processes().items() if "-m billow._worker" in line]
        for pid in workers:
            threading.Thread(target=self.rig.kill, args=(pid,)).start()
        first, loss, attempts = self.finish(process)
        self.assertGreater(first, 0, "not from the beginning")
        self.assertGreater(attempts, 1)
        self.assertLess(loss, 0.01)


if __name__ == "__main__":
    unittest.main()
