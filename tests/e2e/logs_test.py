"""Logs: kept when their node is gone."""
import os
import signal
import unittest

from checkpoint_test import processes_under
from pool_test import PoolRig
from rig import poll


class Kept(unittest.TestCase):
    """Machines of a pool go; what jobs wrote there stays."""

    def tearDown(self):
        self.rig.close()

    def test_a_log_outlives_its_machine(self):
        self.rig = rig = PoolRig()
        rig.add_pool("cloud", "--max", 1, "--idle", "1s")
        job = rig.submit("--gpus", 1, "--", "sh", "-c", "seq 1 200000; echo failed >&2; exit 3")
        silent = rig.submit("--gpus", 1, "--", "true")
        self.assertEqual(rig.cli("wait", job, timeout=90).code, 3)
        poll(lambda: not rig.rented() and not rig.machines(), "the machine given back", 90)
        poll(lambda: rig.json("nodes")["nodes"] == [], "no node left", 30)
        whole = "".join(f"{i}\n" for i in range(1, 200001)) + "failed\n"
        self.assertEqual(rig.ok("logs", job).text, whole)
        self.assertEqual(rig.ok("logs", "-n", 2, job).text, "200000\nfailed\n")
        self.assertEqual(rig.ok("logs", "-f", "--tail", 7, job).text[-7:], "failed\n")
        self.assertEqual(rig.ok("logs", job, "--grep", "19999").text.count("\n"), 12)
        self.assertEqual(rig.ok("logs", silent).text, "")
        # Another head on the same files has it too.
        rig.kill(rig.head_pid())
        rig.up()
        self.assertEqual(rig.ok("logs", job).text, whole)

    def test_a_machine_that_vanishes_leaves_what_was_copied(self):
        self.rig = rig = PoolRig()
        rig.add_pool("cloud", "--max", 1, "--idle", "60s")
        job = rig.submit(
            "--gpus",
            1,
            "--",
            "sh",
            "-c",
            "i=0; while :; do i=$((i+1)); echo line $i; sleep 1; done",
        )
        poll(lambda: "line 3" in rig.cli("logs", job).text, "its first lines", 60)
        kept = os.path.join(rig.data, "files", "logs")
        poll(lambda: any(sizes(kept)), "a copy of a log that is still written", 60)
        (machine,) = rig.rented()
        # Stopped first: the agent must not report what happens to the others.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in processes_under(os.path.join(rig.cloud, machine)):
                os.kill(pid, number)
        os.unlink(os.path.join(rig.cloud, machine + ".pid"))
        poll(lambda: rig.job(job)["final"] or rig.json("nodes")["nodes"] == [], "its loss", 120)
        poll(lambda: rig.json("nodes")["nodes"] == [], "the node gone", 120)
        text = poll(lambda: rig.cli("logs", job).text, "what was copied")
        self.assertTrue(text.startswith("line 1\nline 2\n"), text)
        self.assertIn("the rest of this log was lost with its node", text)

    def test_beyond_the_limit_the_oldest_log_goes_and_says_so(self):
        self.rig = rig = PoolRig(up=False)
        rig.up("--project-logs", "1M")
        rig.add_pool("cloud", "--max", 1, "--idle", "1s")
        command = "head -c 450000 /dev/urandom | base64"
        jobs = [rig.submit("--gpus", 1, "--", "sh", "-c", command) for _ in range(3)]
        for job in jobs:
            self.assertEqual(rig.cli("wait", job, timeout=90).code, 0)
        poll(lambda: rig.json("nodes")["nodes"] == [], "no node left", 90)
        self.assertGreater(len(rig.ok("logs", jobs[2]).out), 600_000)
        done = rig.cli("logs", jobs[0])
        self.assertNotEqual(done.code, 0)
        self.assertIn("its log was removed: the head keeps the newest 1 MiB", done.errors)


def sizes(directory):
    """Of the files below it."""
    return [
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(directory)
        for name in names
    ]


if __name__ == "__main__":
    unittest.main()
