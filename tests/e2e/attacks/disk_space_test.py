"""Jobs that fill the node's disk: a limit ends them, whatever they write and wherever Billow lets
them write."""
import os
import shutil
import tempfile
import time
import unittest

from attacks_neighbour_test import NEEDS_ROOT
from rig import Rig, poll

# Too large for the 16 MiB that the jobs may have, and not enough to fill a disk.
WRITES = "head -c 64M /dev/zero > {}; sync; echo written; sleep 600"


@NEEDS_ROOT
class DiskSpace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.rig.node_policy("allow 0-4294967294\ntmp private\ndisk 16MiB")
        cls.rig.ok("user", "create", "bo", "--unix-name", "nobody")
        cls.rig.ok("project", "member", "default", "bo")
        cls.token = cls.rig.token_for("bo")

    def submit(self, script, *options):
        words = ("submit", "--json", "--gpus", "0", *options, "--", "sh", "-c", script)
        done = self.rig.cli(*words, cwd="/", env={"BILLOW_TOKEN": self.token}, timeout=60)
        self.assertEqual(done.code, 0, done)
        job = done.json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        return job

    def check_ended(self, job):
        lives = ("queued", "starting", "running")
        poll(lambda: self.rig.job(job)["state"] not in lives, "its end", 60)
        document = self.rig.job(job)
        self.assertEqual(document["state"], "failed", document)
        self.assertIn("of the node's disk, and its limit is 16 MiB", document["reason"])

    def test_a_private_tmp_is_limited(self):
        self.check_ended(self.submit(WRITES.format("/tmp/large"), "--no-sync"))

    def test_a_deleted_file_counts(self):
        script = "exec 3>/tmp/large; rm /tmp/large; head -c 64M /dev/zero >&3; sleep 600"
        self.check_ended(self.submit(script, "--no-sync"))

    def test_a_deleted_file_of_a_strict_job_counts(self):
        # Its root has layers, with a device of their own.
        script = "exec 3>/root/large; rm /root/large; head -c 64M /dev/zero >&3; sleep 600"
        self.check_ended(self.submit(script, "--no-sync", "--isolation", "strict"))

    def test_a_strict_job_is_limited(self):
        for place in ("large", "/tmp/large"):
            with self.subTest(place):
                job = self.submit(WRITES.format(place), "--no-sync", "--isolation", "strict")
                self.check_ended(job)

    def test_a_job_that_asks_for_more_gets_it(self):
        job = self.submit(WRITES.format("/tmp/large"), "--no-sync", "--disk", "1GB")
        poll(lambda: "written" in self.rig.cli("logs", job).text, "what it wrote", 60)
        time.sleep(14)  # longer than the time between two looks at its files
        self.assertEqual(self.rig.job(job)["state"], "running")

    def test_a_start_that_fails_leaves_nothing(self):
        where = tempfile.mkdtemp(prefix="sent-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, where)
        os.chmod(where, 0o755)
        self.rig.ok("secret", "set", "K", stdin=b"a value of a secret")
        shown = self.rig.ok("run", "--sync", "--", "pwd", cwd=where)
        place = os.path.dirname(shown.text.strip())
        words = ("submit", "--json", "--gpus", "0", "--sync", "--secret", "K:/usr", "--", "true")
        done = self.rig.cli(*words, cwd=where, env={"BILLOW_TOKEN": self.token}, timeout=60)
        self.assertEqual(done.code, 0, done)
        poll(lambda: self.rig.job(done.json["id"])["state"] == "failed", "its end", 60)
        self.assertIn("is not empty", self.rig.job(done.json["id"])["reason"])

        def left():
            return [name for name in os.listdir(place) if name.split(".")[0].isdigit()]

        poll(lambda: not left(), "the removal of its directory", 30)

    def test_the_limit_outlives_the_agent(self):
        job = self.submit("sleep 4; " + WRITES.format("/tmp/large"), "--no-sync")
        poll(lambda: self.rig.job(job)["state"] == "running", "its start", 60)
        os.kill(self.rig.agent_pid(), 9)
        self.check_ended(job)


if __name__ == "__main__":
    unittest.main()
