"""`billow down` ends the head and this machine's agent. Agents elsewhere, and all jobs, go on."""
import json
import os
import subprocess
import unittest

from ports import free_port
from rig import BILLOW, Rig, alive, poll


class Down(unittest.TestCase):
    def setUp(self):
        self.rig = Rig(sim="2xH100", up=False, args=("--tls",))
        self.addCleanup(self.rig.close)
        self.listen = f"127.0.0.1:{free_port()}"  # the same after `down`, as on a real machine
        self.rig.up(listen=self.listen)

    def join(self, name):
        """An agent with its own data directory, as on another machine."""
        token = self.rig.ok("token", "create", "--node").text.strip()
        with open(os.path.join(self.rig.root, f"{name}.log"), "w", encoding="utf-8") as log:
            agent = subprocess.Popen(
                [
                    *(BILLOW, "join", f"https://{self.listen}", "--token", token),
                    *("--node-name", name, "--data", os.path.join(self.rig.root, name)),
                    *("--sim", "4xL4"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.rig.environment,
            )
        self.rig.started.append(agent)
        poll(lambda: self.states().get(name) == "ready", f"node {name}", 60)
        return agent

    def states(self):
        return {n["name"]: n["state"] for n in self.rig.json("nodes")["nodes"]}

    def held_job(self, gpu, gate):
        beats = self.rig.file(f"beats-{gpu}")
        script = f"until [ -e {gate} ]; do echo x >> {beats}; sleep 0.1; done; exit 3"
        job = self.rig.submit("--gpus", 1, "--gpu-type", gpu, "--", "sh", "-c", script)
        self.rig.wait_for(job, "running", 60)
        poll(lambda: os.path.exists(beats), "its first beat")
        return job, beats

    def test_down_ends_this_machines_agent_and_no_other(self):
        joined = self.join("other")
        gate = self.rig.file("gate")
        here, beats_here = self.held_job("H100", gate)
        there, beats_there = self.held_job("L4", gate)
        own = self.rig.agent_pid()
        self.assertTrue(alive(own))

        said = self.rig.ok("down").text
        self.assertIn("2 running jobs", said)
        poll(lambda: not alive(own), "the end of this machine's agent")
        # Both jobs go on, and so does the joined agent: it has noticed that the head is gone.
        for beats in (beats_here, beats_there):
            size = os.path.getsize(beats)
            poll(lambda: os.path.getsize(beats) > size + 20, f"{beats} goes on")
        self.assertIsNone(joined.poll(), "the joined agent has ended")

        self.rig.up(listen=self.listen)
        poll(lambda: set(self.states().values()) == {"ready"}, "both nodes again", 60)
        self.assertIsNone(joined.poll(), "the joined agent has ended")
        self.assertEqual(len(self.states()), 2, self.states())
        for job in (here, there):
            self.assertEqual(self.rig.job(job)["state"], "running")
        with open(gate, "w", encoding="ascii"):
            pass
        for job in (here, there):
            self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 3)
            self.assertEqual(self.rig.job(job)["attempt"], 1, json.dumps(self.rig.job(job)))
        self.assertEqual(self.rig.cli("run", "--gpus", 1, "--gpu-type", "L4", "--", "true").code, 0)

    def test_with_its_jobs_every_agent_leaves(self):
        joined = self.join("other")
        job, _ = self.held_job("L4", self.rig.file("never"))
        self.rig.ok("down", "--stop-jobs", timeout=90)
        self.assertEqual(joined.wait(30), 0)
        self.rig.up(listen=self.listen)
        self.assertEqual(self.rig.job(job)["state"], "stopped")


class Terminated(unittest.TestCase):
    def test_a_head_with_secrets_ends_cleanly(self):
        """It overwrites the memory that it frees, so nothing may use any of that later."""
        rig = Rig(up=False)
        self.addCleanup(rig.close)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        head = rig.start("up", "--no-agent", "--listen", "127.0.0.1:0", **quiet)
        poll(lambda: rig.cli("status").code == 0, "the head answers")
        rig.ok("secret", "set", "word", stdin=b"a secret")
        head.terminate()
        self.assertEqual(head.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
