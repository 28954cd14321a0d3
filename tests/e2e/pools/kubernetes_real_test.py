"""The Kubernetes pool on a real cluster (tests/support/kube_real.py), where its programs are installed."""
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import kube_real
from kube_service import ServiceAddresses
from kubernetes_test import Cases, RealRig
from rig import BILLOW, SOURCE, poll


@unittest.skipIf(kube_real.missing(), kube_real.missing())
class OnReal(Cases, unittest.TestCase):
    """API server, scheduler, controllers, kubelet and containerd are the real ones."""

    @classmethod
    def setUpClass(cls):
        root = tempfile.mkdtemp(prefix="billow-k8s-")
        cls.addClassCleanup(shutil.rmtree, root, ignore_errors=True)
        cls.real = kube_real.KubeReal(os.path.join(root, "cluster"))
        cls.addClassCleanup(cls.real.close)

    def make_rig(self):
        return RealRig(self.real)

    def shared(self):
        folder = self.rig.file("shared")
        os.makedirs(folder)
        os.chmod(folder, 0o777)
        self.cluster.set_profile("privileged")  # "restricted" has no volumes of the node
        return folder, ("--option", f"volumes=host/{folder}:{folder}")

    def test_the_first_output_comes_as_fast_as_kubectls(self):
        self.add_pool("k", gpu="1xL4")

        def first_output(words):
            began = time.monotonic()
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, env=self.rig.environment, cwd=self.rig.files
            )
            line = process.stdout.readline()
            took = time.monotonic() - began
            process.stdout.read()
            process.wait()
            process.stdout.close()
            self.assertEqual(line, b"out\n")
            return took

        network = self.real.spaces.network()
        config = ("--kubeconfig", self.real.file("admin.conf"), "-n", "default")
        other = first_output(
            [
                *(*network, kube_real.find_program("kubectl"), *config, "run", "other", "--rm"),
                *("-i", "--quiet", "--restart=Never", "--image", kube_real.IMAGE, "--"),
                *("sh", "-c", "sleep 0.5; echo out"),
            ]
        )
        ours = first_output(self.rig.command("run", "--gpus", 1, "--", "echo", "out"))
        print(f"first output: billow run {ours:.2f} s, kubectl run {other:.2f} s", flush=True)
        self.assertLess(ours, max(5, 2 * other))
        self.rig.empty()

    def test_the_shipped_role_is_enough(self):
        role = self.rig.ok("install", "kubernetes", "--pool-only", "--namespace", "team").text
        self.cluster.use_role(role)
        done = self.rig.add_pool("k", "--option", "gpu-product=NVIDIA-L4", gpu="1xL4")
        self.assertEqual(done.code, 0, done)
        self.assertEqual(
            self.rig.ok("run", "--gpus", 1, "--", "id", "-u", timeout=90).out, b"1000\n"
        )
        self.rig.empty()
        self.assertNotIn("forbidden", self.rig.head_log())

    def test_the_documented_steps_for_an_account_with_few_rights_work(self):
        with open(os.path.join(SOURCE, "docs/kubernetes.md"), encoding="utf-8") as f:
            text = f.read()
        role = re.search(r"`(billow install kubernetes --pool-only [^`]*)`", text)[1]
        steps = re.search(r"A kubeconfig for it, .*?```sh\n(.*?)```", text, re.S)[1]
        # GPUs are simulated here, and the image is one that exists here.
        ours = f"--gpu 1xL4 --sim 1xL4 --image {self.rig.image} --idle 2s"
        steps = steps.replace("--gpu-type H100", ours)
        self.assertIn(ours, steps)
        programs = (os.path.dirname(BILLOW), os.path.dirname(kube_real.find_program("kubectl")))
        done = subprocess.run(
            [*self.real.spaces.network(), "sh", "-ec", f"{role}\n{steps}"],
            env={
                **self.rig.environment,
                "KUBECONFIG": self.real.file("admin.conf"),
                "PATH": ":".join((*programs, os.environ["PATH"])),
            },
            cwd=self.rig.files,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.rig.ok("run", "--gpus", 1, "--", "id", "-u", timeout=90).out
        self.assertEqual(out, b"1000\n")
        self.rig.empty()
        self.assertNotIn("forbidden", self.rig.head_log())

    def test_a_head_on_a_laptop_is_reached_through_a_tunnel(self):
        # The head listens on its own machine only, as a laptop does whose network nobody enters.
        self.rig.ok("down")
        self.rig.up("--tls-name", "10.99.0.1", listen="127.0.0.1:0")
        port = self.rig.address()[1]
        tunnel = ServiceAddresses(self.real)
        self.addCleanup(tunnel.close)
        tunnel.lead("10.99.0.1", 7070, "127.0.0.1", port)
        self.add_pool("k", "--head-url", "https://10.99.0.1:7070", gpu="1xL4")
        done = self.rig.ok("run", "--gpus", 1, "--", "sh", "-c", "echo tunnelled", timeout=90)
        self.assertEqual(done.out, b"tunnelled\n")
        self.rig.empty()

    def test_logs_files_ports_and_exit_codes_come_out_of_a_pod(self):
        self.add_pool("k", gpu="1xL4")
        with open(os.path.join(self.rig.files, "input"), "w", encoding="ascii") as f:
            f.write("from the laptop")
        serve = "cat input > output; echo said; echo warned >&2; nc -l -p 8123 -e cat; exit 7"
        job = self.rig.submit("--gpus", 1, "--", "sh", "-c", serve)
        self.running(job)
        poll(lambda: "said" in self.rig.ok("logs", job).text, "the output", 30)
        self.rig.ok("cp", f"{job}:output", self.rig.file("output"))
        with open(self.rig.file("output"), encoding="ascii") as f:
            self.assertEqual(f.read(), "from the laptop")
        forward = self.rig.start("port-forward", job, "18123:8123")
        talk = [*self.real.spaces.network(), "busybox", "nc", "-w", "5", "127.0.0.1", "18123"]

        def echo():
            done = subprocess.run(talk, input=b"ping\n", capture_output=True, check=False)
            return done.stdout == b"ping\n"

        poll(echo, "an answer through the forwarded port", 30)
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 7)
        forward.kill()
        self.assertIn("warned", self.rig.ok("logs", job).text)
        self.rig.empty()


if __name__ == "__main__":
    unittest.main()
