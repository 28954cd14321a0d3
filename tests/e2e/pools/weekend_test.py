"""Ways to forget a machine over a weekend, from the table in docs/clouds.md: each machine ends by itself. A minute of a machine's own timer is a fraction of a second here; the head's own 14 minutes are tested with a clock in
tests/unit/control/renting_test.cpp, and the rows about orders (lost answers, heads that die) in clouds_test.NeverLeak."""
import os
import shutil
import signal
import unittest

from clouds_test import CloudRig
from rig import poll


class Weekend(unittest.TestCase):
    def setUp(self):
        self.rig = CloudRig()
        self.rig.aws.machines.environment["BILLOW_BOOT_TICK"] = "0.3"
        self.rig.add()

    def tearDown(self):
        self.rig.close()

    def running(self):
        """A job on a rented machine: both."""
        rig = self.rig
        job = rig.submit("--gpus", 1, "--", "sleep", "600")
        poll(lambda: rig.job(job)["state"] == "running", "running", 120)
        return job, rig.aws.alive()[0]

    def ends_itself(self, one):
        poll(lambda: os.path.exists(one["home"] + "/off"), "power off", 120)
        self.rig.aws.powered_off()
        self.assertEqual(self.rig.aws.alive(), [])

    def test_a_job_stopped_before_its_machine_has_come(self):
        rig = self.rig
        rig.aws.boots = False
        job = rig.submit("--gpus", 1, "--", "true")
        poll(rig.aws.alive, "a machine", 60)
        rig.ok("stop", job)
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)
        poll(lambda: not rig.machines(), "nothing left in the books", 60)

    def test_a_head_that_comes_back_from_an_older_backup(self):
        rig = self.rig
        backup = rig.root + "/backup"
        rig.ok("down")
        shutil.copytree(rig.data, backup, symlinks=True)
        rig.up()
        self.running()
        rig.kill(rig.head_pid())
        shutil.rmtree(rig.data)
        shutil.copytree(backup, rig.data, symlinks=True)
        rig.up()
        self.assertEqual(rig.machines(), {}, "this head does not know it")
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)

    def test_a_cloud_whose_list_fails(self):
        rig = self.rig
        job, _ = self.running()
        # A machine that no list has shown has no id, and is ended by its own timer.
        poll(lambda: all(m["external"] for m in rig.machines().values()), "its id in a list", 60)
        rig.aws.denied = {"DescribeInstances"}
        poll(lambda: "DescribeInstances" in rig.head_log(), "a list that fails", 30)
        rig.ok("stop", job)
        poll(lambda: not rig.aws.alive(), "the machine ended by its id", 60)
        self.assertNotEqual(rig.machines(), {}, "no list has shown its end")
        rig.aws.denied = set()
        poll(lambda: not rig.machines(), "nothing left in the books", 60)

    def test_a_cloud_that_neither_lists_nor_ends(self):
        rig = self.rig
        job, one = self.running()
        rig.aws.denied = {"DescribeInstances", "TerminateInstances"}
        rig.ok("stop", job)
        self.ends_itself(one)
        rig.aws.denied = set()
        poll(lambda: not rig.machines(), "nothing left in the books", 60)

    def test_credentials_that_are_revoked(self):
        rig = self.rig
        job, one = self.running()
        keys, rig.aws.keys = rig.aws.keys, {}
        rig.ok("stop", job)
        self.ends_itself(one)
        poll(lambda: "AuthFailure" in rig.head_log(), "it is said", 30)
        self.assertNotEqual(rig.machines(), {}, "and nothing is forgotten")
        rig.aws.keys = keys
        poll(lambda: not rig.machines(), "nothing left in the books", 60)

    def test_an_agent_that_stays_away(self):
        _, one = self.running()
        self.silence(one)
        self.ends_itself(one)
        poll(lambda: not self.rig.machines(), "nothing left in the books", 60)

    @staticmethod
    def silence(one):
        """Ends the agent and what would start it again; the job and the machine's timer go on."""
        for _ in range(2):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        line = f.read().decode(errors="replace")
                except OSError:
                    continue
                agent = "join" in line and "--check" not in line
                if one["home"] in line and (agent or "node.sh" in line) and "watch" not in line:
                    os.kill(int(pid), signal.SIGKILL)

    def test_a_cloud_that_is_removed(self):
        rig = self.rig
        self.running()
        rig.ok("cloud", "rm", "aws", timeout=120)
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)
        poll(lambda: not rig.json("pool", "list")["pools"], "the cloud is gone", 60)


if __name__ == "__main__":
    unittest.main()
