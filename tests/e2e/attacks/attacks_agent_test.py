"""Attacks by a coding agent on the person who gave it a token: its jobs reach nothing of that
person on the node, whichever way they try."""

import json
import os
import pwd
import shutil
import subprocess
import tempfile
import unittest

from rig import PROGRAMS_IN_TMP, Rig

# Prints what came of each try: the error, or what was got.
TRIES = """
import ctypes, json, os, signal, socket, sys
home, owner_pid, head_data = sys.argv[1], int(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
def read(path):
    with open(path, "rb") as f:
        return f.read(200).decode("utf-8", "replace")
def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return "connected"
def trace(pid):
    if libc.ptrace(0x4206, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "traced"
def link_out():
    os.symlink(home, "way-out")
    return read("way-out/secret")
tries = {
    "secret file": lambda: read(home + "/secret"),
    "readable file in the home directory": lambda: read(home + "/notes"),
    "home directory": lambda: str(os.listdir(home)),
    "write into the home directory": lambda: open(home + "/planted", "w").name,
    "a link": link_out,
    "socket": lambda: connect(home + "/agent.sock"),
    "abstract socket": lambda: connect("\\0billow-test-" + sys.argv[4]),
    "environment of another job": lambda: read(f"/proc/{owner_pid}/environ"),
    "files through another job": lambda: read(f"/proc/{owner_pid}/root{home}/secret"),
    "memory of another job": lambda: read(f"/proc/{owner_pid}/mem"),
    "trace another job": lambda: trace(owner_pid),
    "signal another job": lambda: os.kill(owner_pid, 0) or "signalled",
    "data of the head": lambda: str(os.listdir(head_data)),
    "socket of the head": lambda: connect("/run/billow/head.sock"),
    "passwords": lambda: read("/etc/shadow"),
    "files in /tmp": lambda: str(os.listdir("/tmp")) if set(os.listdir("/tmp")) - PROGRAMS else
        (_ for _ in ()).throw(OSError(2, "empty")),
    "processes of the node": lambda: str([p for p in os.listdir("/proc") if p.isdigit()])
        if len([p for p in os.listdir("/proc") if p.isdigit()]) > 8 else
        (_ for _ in ()).throw(OSError(2, "only its own")),
}
out = {}
for name, attempt in tries.items():
    try:
        out[name] = "GOT " + str(attempt())
    except Exception as e:
        out[name] = type(e).__name__
open("mine", "w").write("x")
out["work"] = "fine"
print(json.dumps(out))
""".replace("PROGRAMS", repr(set(PROGRAMS_IN_TMP)))
LISTEN = """
import socket, sys, time
keep = []
for address in (sys.argv[1], "\\0billow-test-" + sys.argv[2]):
    s = socket.socket(socket.AF_UNIX)
    s.bind(address)
    s.listen(8)
    keep.append(s)
print("listening", flush=True)
time.sleep(600)
"""


LIMITS = ["--budget", "20", "--per-job", "5", "--gpus", "2", "--expires", "8h"]
NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, to be several people")


class Attack:
    """A person with a home directory, a process and an agent token; and the agent's job."""

    def __init__(self, case, rig, account, token, user=None):
        self.case, self.rig, self.token, self.user = case, rig, token, user
        entry = pwd.getpwnam(account)
        self.home = tempfile.mkdtemp(prefix="home-", dir="/var/tmp")
        case.addCleanup(shutil.rmtree, self.home, True)
        for name, mode in (("secret", 0o600), ("notes", 0o644)):
            with open(f"{self.home}/{name}", "w", encoding="utf-8") as f:
                f.write("the owner's own")
            os.chmod(f"{self.home}/{name}", mode)
            os.chown(f"{self.home}/{name}", entry.pw_uid, entry.pw_gid)
        os.chmod(self.home, 0o755)
        os.chown(self.home, entry.pw_uid, entry.pw_gid)
        become = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
        self.process = subprocess.Popen(
            become + ["python3", "-c", LISTEN, self.home + "/agent.sock", str(os.getpid())],
            stdout=subprocess.PIPE,
        )
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        case.assertEqual(self.process.stdout.readline(), b"listening\n")

    def run(self, *options, **environment):
        """What came of each try."""
        where = tempfile.mkdtemp(prefix="agent-", dir="/var/tmp")
        self.case.addCleanup(shutil.rmtree, where, True)
        os.chmod(where, 0o777)
        with open(where + "/tries.py", "w", encoding="utf-8") as f:
            f.write(TRIES)
        words = [self.home, str(self.process.pid), self.rig.data, str(os.getpid())]
        done = self.rig.cli(
            "run",
            *options,
            "--",
            "python3",
            "tries.py",
            *words,
            cwd=where,
            user=self.user,
            timeout=120,
            env={"BILLOW_TOKEN": self.token, **environment},
        )
        self.case.assertEqual(done.code, 0, done)
        return json.loads(done.text.strip().splitlines()[-1])

    def check(self, got):
        self.case.assertEqual(got.pop("work"), "fine")
        self.case.assertEqual({k: v for k, v in got.items() if v.startswith("GOT")}, {})
        self.case.assertEqual(sorted(os.listdir(self.home)), ["agent.sock", "notes", "secret"])


@NEEDS_ROOT
class OnSharedNodes(unittest.TestCase):
    """The node's agent runs as root, and people have accounts."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.addClassCleanup(cls.rig.close)
        cls.rig.ok("user", "create", "ana", "--unix-name", "nobody")
        cls.rig.ok("project", "member", "default", "ana", "--role", "member")
        cls.anas = cls.rig.token_for("ana")
        create = ["token", "create", "--agent", "helper", *LIMITS]
        done = cls.rig.ok(*create, env={"BILLOW_TOKEN": cls.anas})
        cls.agents = done.text.split()[0]

    def test_a_job_of_the_agent_reaches_nothing_of_its_person(self):
        attack = Attack(self, self.rig, "nobody", self.agents)
        attack.check(attack.run())
        attack.check(attack.run("--gpus", "1", BILLOW_CACHE=attack.home))

    def test_the_persons_own_jobs_are_as_before(self):
        attack = Attack(self, self.rig, "nobody", self.anas)
        got = attack.run()
        self.assertEqual(got["secret file"], "GOT the owner's own")

    def test_an_agent_of_root_is_not_root(self):
        token = self.rig.ok("token", "create", "--agent", "roots", *LIMITS).text.split()[0]
        attack = Attack(self, self.rig, "root", token)
        attack.check(attack.run())

    def test_its_jobs_have_a_user_of_their_own(self):
        done = self.rig.cli(
            "run",
            "--no-sync",
            "--",
            "sh",
            "-c",
            "cat /proc/self/uid_map; pwd; echo $HOME; ls -A",
            env={"BILLOW_TOKEN": self.agents},
        )
        self.assertEqual(done.code, 0, done)
        lines = done.text.splitlines()
        self.assertGreaterEqual(int(lines[0].split()[1]), 65536, "not an account of the machine")
        self.assertEqual(lines[1], lines[2], "its home is its own directory")
        self.assertEqual(lines[3:], [], "nothing is in it")

    def test_its_files_and_outputs_work(self):
        where = tempfile.mkdtemp(prefix="agent-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, where, True)
        with open(where + "/given", "w", encoding="ascii") as f:
            f.write("in")
        command = "cat given; mkdir out; echo made > out/result; ln -s /etc out/link"
        done = self.rig.cli(
            "run",
            "--output",
            "out",
            "--",
            "sh",
            "-c",
            command,
            cwd=where,
            env={"BILLOW_TOKEN": self.agents},
        )
        self.assertEqual((done.code, done.text), (0, "in"), done)


@NEEDS_ROOT
class OnOnesOwnMachine(unittest.TestCase):
    """The head and its agent run as an ordinary person: no other account is to be had."""

    def test_a_job_of_the_agent_reaches_nothing_of_its_person(self):
        rig = Rig(up=False, HOME="/nonexistent")
        self.addCleanup(rig.close)
        uid = pwd.getpwnam("nobody").pw_uid
        for path in (rig.root, rig.files):
            os.chown(path, uid, -1)
        create = ["token", "create", "--agent", "helper", *LIMITS]
        started = rig.cli(
            "up", "--background", "--listen", "127.0.0.1:0", "--sim", rig.sim, user=uid
        )
        self.assertEqual(started.code, 0, started)
        done = rig.cli(*create, user=uid)
        self.assertEqual(done.code, 0, done)
        attack = Attack(self, rig, "nobody", done.text.split()[0], user=uid)
        attack.check(attack.run())
        attack.check(attack.run("--gpus", "1", BILLOW_CACHE=attack.home))
        self.assertEqual(rig.cli("down", "--stop-jobs", user=uid).code, 0)


if __name__ == "__main__":
    unittest.main()
