"""Plain jobs on a node whose policy says `tmp private`: what they see of /tmp and /dev/shm."""
import os
import shutil
import stat
import tempfile
import unittest

from attacks_neighbour_test import NEEDS_ROOT
from rig import Rig, poll

POLICY = "allow 0-4294967294\ntmp private"


@NEEDS_ROOT
class PrivateTmp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.rig.node_policy(POLICY)
        cls.rig.ok("user", "create", "bo", "--unix-name", "nobody")
        cls.rig.ok("project", "member", "default", "bo")
        cls.token = cls.rig.token_for("bo")
        cls.mark = f"/tmp/billow-seen-by-all-{os.getpid()}"
        with open(cls.mark, "w", encoding="ascii"):
            pass
        cls.addClassCleanup(os.remove, cls.mark)

    def cli(self, *words, cwd="/"):
        return self.rig.cli(*words, cwd=cwd, env={"BILLOW_TOKEN": self.token}, timeout=60)

    def shell(self, script, *options, cwd="/"):
        words = ("run", "--gpus", "0", "--no-sync", *options, "--", "sh", "-c", script)
        done = self.cli(*words, cwd=cwd)
        self.assertEqual(done.code, 0, done)
        return done.text

    def submit(self, script):
        words = ("submit", "--json", "--gpus", "0", "--no-sync", "--", "sh", "-c", script)
        job = self.cli(*words).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "begun" in self.rig.cli("logs", job).text, "its start", 60)
        return job

    def test_it_begins_empty_and_is_seen_by_nobody_else(self):
        job = self.submit(
            "umask 0; echo mine > /tmp/mine; echo mine > /dev/shm/mine; echo begun; sleep 600"
        )
        self.assertFalse(os.path.exists("/tmp/mine"))
        self.assertFalse(os.path.exists("/dev/shm/mine"))
        seen = self.shell(f"ls {self.mark} /tmp/mine /dev/shm/mine 2>/dev/null; echo end")
        self.assertEqual(seen, "end\n")
        self.assertEqual(self.rig.job(job)["state"], "running")

    def test_it_can_be_used(self):
        got = self.shell(
            "mktemp && echo x > /dev/shm/x && mkfifo /tmp/f && cat /dev/shm/x && test -w /tmp"
            " && stat -f -c %T /dev/shm"
        )
        self.assertIn("x\ntmpfs", got)

    def test_it_goes_with_the_job(self):
        job = self.submit("echo secret > /tmp/left-behind; echo begun; sleep 600")
        self.rig.ok("stop", "--force", job)
        poll(lambda: not self.found("left-behind"), "its removal", 30)

    @staticmethod
    def found(name):
        """Below the places where agents keep jobs' files."""
        for top in ("/var/tmp", "/tmp"):
            for entry in os.listdir(top):
                if entry.startswith("billow-") and stat.S_ISDIR(os.lstat(f"{top}/{entry}").st_mode):
                    for folder, _, files in os.walk(f"{top}/{entry}"):
                        if name in files:
                            return folder
        return None

    def test_processes_of_one_task_share_it(self):
        script = (
            'if [ "$RANK" = 0 ]; then echo shared > /dev/shm/r; echo shared > /tmp/r; fi;'
            " for i in $(seq 100); do [ -s /dev/shm/r ] && [ -s /tmp/r ] && break; sleep 0.1; done;"
            " cat /dev/shm/r /tmp/r"
        )
        self.assertEqual(self.shell(script, "--procs", "2").count("shared"), 4)

    def test_a_working_directory_below_tmp_stays(self):
        where = tempfile.mkdtemp(prefix="work-", dir="/tmp")
        self.addCleanup(shutil.rmtree, where, True)
        os.chmod(where, 0o777)
        self.shell("pwd; echo kept > out", cwd=where)
        with open(where + "/out", encoding="ascii") as f:
            self.assertEqual(f.read(), "kept\n")

    def test_it_is_the_owners_choice(self):
        self.addCleanup(self.rig.node_policy, POLICY)
        self.rig.node_policy("allow 0-4294967294")
        self.assertEqual(self.shell(f"ls {self.mark}").strip(), self.mark)


if __name__ == "__main__":
    unittest.main()
