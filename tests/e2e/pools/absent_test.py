"""Nodes that go away: by a cut network, with a head that restarts meanwhile, removed, and joined
again."""
import os
import signal
import subprocess
import time
import unittest

from far import FarCase
from rig import poll


class AbsentTest(FarCase):
    hosts = ("head", "a", "b")
    joined = ("a",)

    def job(self, number):
        return self.rig.json("describe", number)

    def submit(self, *args):
        return str(self.rig.json("submit", *args)["id"])

    def away(self, name):
        return poll(
            lambda: self.rig.nodes()[name]["state"] == "unreachable", f"{name} unreachable", 60
        )

    def test_1_a_head_that_starts_gives_nothing_to_a_node_that_is_not_there(self):
        token = self.rig.join_token()
        agent = self.rig.join("b", token)
        self.rig.node_here("b")
        self.rig.ok("down")
        with self.assertRaises(subprocess.TimeoutExpired):
            agent.wait(3)  # agents of other machines wait for the next head
        for process in self.rig.started:  # both end; one is started again
            process.terminate()
            process.wait(30)
        self.rig.up()
        self.assertEqual({n["state"] for n in self.rig.nodes().values()}, {"unreachable"})
        self.rig.join("a", token)
        numbers = [self.submit("--gpus", "1", "--", "true") for _ in range(6)]
        for number in numbers:
            self.rig.ok("wait", number, timeout=60)
            self.assertEqual([t["node"] for t in self.job(number)["tasks"]], ["a"])
        self.assertEqual(self.rig.nodes()["b"]["state"], "unreachable")
        self.rig.ok("node", "rm", "b")

    def test_2_a_cut_node_keeps_its_jobs_and_charges_nothing_meanwhile(self):
        kept = self.submit("--gpus", "1", "--", "sleep", "600")
        stopped = self.submit("--gpus", "1", "--", "sleep", "600")
        for number in (kept, stopped):
            poll(lambda n=number: self.job(n)["tasks"][0]["state"] == "running", "it runs", 30)
        run = subprocess.Popen(
            self.rig.command("run", "--gpus", "1", "--", "sleep", "600"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.rig.environment,
        )
        poll(lambda: len(self.rig.json("ps")["jobs"]) == 3, "three jobs", 30)
        self.net.cut("a")
        try:
            self.away("a")
            cost = self.job(kept)["cost_nano_usd"]
            poll(lambda: "a unreachable for" in self.rig.ok("ps").text, "the remark", 30)
            self.assertIn("a unreachable for", self.rig.ok("explain", kept).text)
            begun = time.monotonic()
            logs = self.rig.cli("logs", kept)
            self.assertIn("has been unreachable for", logs.errors)
            self.assertLess(time.monotonic() - begun, 30)
            self.assertIn("does not answer", self.rig.ok("stop", stopped).text)
            self.assertEqual(self.job(stopped)["state"], "stopped")
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(60), 128 + signal.SIGTERM)
            self.assertEqual(self.job(kept)["state"], "running")
            self.assertEqual(self.job(kept)["cost_nano_usd"], cost)
        finally:
            run.kill()
            run.stdout.close()
            self.net.mend("a")
        self.rig.node_here("a", 60)
        self.assertEqual(self.job(kept)["state"], "running", "a cut network ends no job")
        self.assertGreater(self.job(kept)["cost_nano_usd"], cost, "it did run")
        self.rig.ok("stop", "--force", "--wait", kept)

    def test_3_a_removed_node_ends_what_it_runs_and_joins_again_in_the_same_place(self):
        agent = self.rig.join("b", self.rig.join_token())
        self.rig.node_here("b")
        mark = os.path.join(self.rig.root, "alive")
        self.rig.ok("cordon", "a")
        number = self.submit("--gpus", "1", "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 600")
        poll(
            lambda: os.path.exists(mark) and self.job(number)["tasks"][0]["state"] == "running",
            "it runs on b",
            30,
        )
        with open(mark, encoding="utf-8") as f:
            pid = int(f.read())
        self.net.cut("b")
        try:
            self.away("b")
            self.rig.ok("node", "rm", "b")
        finally:
            self.net.mend("b")
        self.assertEqual(self.job(number)["state"], "lost")
        self.assertEqual(agent.wait(90), 78, self.rig.log_of("b"))
        self.assertIn("the head has removed this node", self.rig.log_of("b"))
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        again = self.rig.join("b", self.rig.join_token())
        self.rig.node_here("b", 60)
        self.assertIn("is no longer valid", self.rig.log_of("b"))
        self.rig.ok("run", "--gpus", "1", "--", "true")
        self.rig.ok("uncordon", "a")
        again.terminate()
        again.wait(30)


if __name__ == "__main__":
    unittest.main()
