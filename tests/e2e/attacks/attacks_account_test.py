"""Two plain jobs of one account: the account's files are both jobs', but neither reaches into the
other's processes, nor what Billow gave the other alone."""
import ctypes
import json
import os
import pwd
import tempfile
import unittest

from attacks_neighbour_test import NEEDS_ROOT
from rig import RigTest, poll

# Version 2 on: before, a domain forbids moving files between directories, and Billow uses none.
LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 2

VICTIM = """
import json, os, time
held = open("held-open", "w+")
held.write("held by the other job")
held.flush()
os.unlink("held-open")
print(json.dumps({"pid": os.getpid(), "fd": held.fileno(), "file": os.environ["KEY_FILE"]}),
      flush=True)
time.sleep(600)
"""

TRIES = """
import ctypes, errno, json, os, re, sys
v = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
pid = v["pid"]
def ok(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
def read(path):
    with open(path, "rb") as f:
        return f.read(100)
def guessed():
    # Where its secret would be, if only the number of the task were another.
    theirs = re.search(r"secrets-([0-9]+)", v["file"])[1]
    return re.sub(r"secrets-[0-9]+", "secrets-" + theirs, os.environ["KEY_FILE"])
tries = {
    "its command line": lambda: read(f"/proc/{pid}/cmdline"),
    "its variables": lambda: read(f"/proc/{pid}/environ"),
    "its memory": lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)),
    "its descriptors": lambda: os.readlink(f"/proc/{pid}/fd/{v['fd']}"),
    "its open file": lambda: read(f"/proc/{pid}/fd/{v['fd']}"),
    "its working directory": lambda: os.listdir(f"/proc/{pid}/cwd/"),
    "its root": lambda: os.listdir(f"/proc/{pid}/root/"),
    "its descriptor by pidfd": lambda: ok(libc.syscall(438, os.pidfd_open(pid), v["fd"], 0)),
    "trace it": lambda: ok(libc.ptrace(0x4206, pid, None, None)),
    "its secret": lambda: read(guessed()),
}
got = {}
for name, one in tries.items():
    try:
        got[name] = "GOT " + repr(one())[:60]
    except OSError as e:
        got[name] = errno.errorcode.get(e.errno, str(e))
# What programs of one account expect of each other.
usual = {}
usual["signal it"] = os.kill(pid, 0) is None
child = os.fork()
if child == 0:
    os.pause() if hasattr(os, "pause") else __import__("signal").pause()
usual["trace a child"] = libc.ptrace(0x4206, child, None, None) == 0
usual["read a child"] = b"KEY_FILE" in open(f"/proc/{child}/environ", "rb").read()
os.kill(child, 9)
os.makedirs("from"), os.makedirs("to")
open("from/a", "w").close()
os.rename("from/a", "to/a")
os.link("to/a", "from/b")
usual["move and link"] = os.listdir("to") + os.listdir("from")
print(json.dumps({"got": got, "usual": usual}))
"""


@NEEDS_ROOT
class OneAccount(RigTest):
    options = {"sim": "1xH100"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rig.ok("user", "create", "ana", "--unix-name", "nobody")
        cls.rig.ok("project", "member", "default", "ana")
        cls.rig.ok("secret", "set", "KEY", stdin=b"what only one job was given")
        cls.token = {"BILLOW_TOKEN": cls.rig.token_for("ana")}

    def directory(self, **files):
        where = tempfile.mkdtemp(prefix="account-", dir="/var/tmp")
        self.addCleanup(os.system, f"rm -rf {where}")
        for name, text in files.items():
            with open(f"{where}/{name}.py", "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(f"{where}/{name}.py", 0o644)
        entry = pwd.getpwnam("nobody")
        os.chown(where, entry.pw_uid, entry.pw_gid)
        os.chmod(where, 0o755)
        return where

    def submit(self, where, *words):
        job = self.rig.cli(
            *("submit", "--json", "--gpus", "0", "--cwd", where, *words), env=self.token
        ).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        return job

    @unittest.skipUnless(LANDLOCK, "this kernel has no Landlock: only the secret's name is hidden")
    def test_a_job_reaches_nothing_inside_another_job_of_its_account(self):
        where = self.directory(victim=VICTIM)
        job = self.submit(where, "--secret", "KEY:file", "--", "/usr/bin/python3", "victim.py")
        poll(lambda: "{" in self.rig.cli("logs", job).text, "the victim's words", 60)
        victim = self.rig.ok("logs", job).text.strip().splitlines()[-1]
        done = self.rig.cli(
            *("run", "--gpus", "0", "--cwd", self.directory(tries=TRIES), "--secret", "KEY:file"),
            *("--", "/usr/bin/python3", "tries.py", victim),
            env=self.token,
            timeout=120,
        )
        self.assertEqual(done.code, 0, done)
        said = json.loads(done.text.strip().splitlines()[-1])
        self.assertEqual({k: v for k, v in said["got"].items() if v.startswith("GOT")}, {})
        self.assertEqual(len(said["got"]), 10)
        self.assertEqual(
            said["usual"],
            {
                "signal it": True,
                "trace a child": True,
                "read a child": True,
                "move and link": ["a", "b"],
            },
        )

    def test_a_hook_can_look_into_its_job(self):
        """As debuggers do, which people start with `billow ssh`."""
        where = self.directory()
        left = f"{where}/seen"
        hook = (
            "for p in $(pgrep -f 'sleep 600[.]25'); do"
            f" tr '\\0' '\\n' < /proc/$p/environ | grep BILLOW_JOB_ID > {left}; done"
        )
        job = self.submit(where, "--spot", "--suspend-hook", hook, "--", "sleep", "600.25")
        self.rig.wait_for(job, "running")
        poll(lambda: self.rig.cli("suspend", job).code == 0, "the suspend")
        poll(lambda: os.path.exists(left) and os.path.getsize(left), "what the hook saw", 60)
        with open(left, encoding="ascii") as f:
            self.assertIn(f"BILLOW_JOB_ID={job}", f.read())

    def test_doctor_says_whether_this_kernel_keeps_them_apart(self):
        done = self.rig.cli("doctor", "--isolation", "--json")
        rows = [f for f in done.json["findings"] if "another job of its account" in f["text"]]
        self.assertEqual(len(rows), 1, done.json)
        self.assertEqual(rows[0]["level"], "ok" if LANDLOCK else "problem", rows)
        if not LANDLOCK:
            self.assertIn("no Landlock", rows[0]["advice"])


if __name__ == "__main__":
    unittest.main()
