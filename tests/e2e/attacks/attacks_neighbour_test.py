"""Attacks of one user's job on another user's job beside it on the node: its files, processes,
sockets, shared memory, caches and outputs, in every mode in which a job can run."""
import json
import os
import pwd
import shutil
import tempfile
import unittest

from attacks_image_test import ImagePython
from rig import Rig, poll

NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, to be several people")

# The neighbour: it has something of every kind, as private as its kind allows, and says where.
VICTIM = """
import ctypes, json, os, socket, sys, time
from multiprocessing import shared_memory
os.umask(0o077)
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("private")
open("private/secret", "w").write("the neighbour's own")
open("/tmp/neighbour-secret", "w").write("the neighbour's own")
open("/dev/shm/neighbour-secret", "w").write("the neighbour's own")
os.mkfifo("private/pipe")
keep = [open("private/secret"), socket.socket(socket.AF_UNIX)]
keep[1].bind(os.getcwd() + "/private/socket")
keep[1].listen()
memory = libc.shmget(0x42696c6c, 4096, 0o1600)
queue = libc.msgget(0x42696c6c, 0o1600)
lock = libc.semget(0x42696c6c, 1, 0o1600)
here = {"pid": os.getpid(), "cwd": os.getcwd(), "memory": memory, "queue": queue, "lock": lock,
        "variables": sorted(k for k in os.environ if k.startswith("BILLOW_")),
        "files": os.environ.get("BILLOW_FILES_SOCKET", ""),
        "cache": os.environ["BILLOW_CACHE"]}
print(json.dumps(here), flush=True)
time.sleep(600)
"""

# Prints what came of each try: "GOT …" or the error.
TRIES = """
import ctypes, errno, json, mmap, os, platform, signal, socket, struct, sys, time
v = json.loads(sys.argv[1])
work, data, owner = sys.argv[2], sys.argv[3], int(sys.argv[4])
libc = ctypes.CDLL(None, use_errno=True)
pid, cwd = v["pid"], v["cwd"]
def ok(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
def call(x86, arm, *args):
    return ok(libc.syscall(ctypes.c_long(x86 if platform.machine() == "x86_64" else arm), *args))
def read(path):
    with open(path, "rb") as f:
        return f.read(100)
def write(path):
    with open(path, "ab") as f:
        f.write(b"planted")
    return "written"
def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect(path)
    return "connected"
def door(path):
    # The agent answers the processes of the job that a door is for, and closes it to others.
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect(path)
    s.sendall(b"60 mine\\n")
    got = s.recv(100)
    if not got:
        raise OSError(errno.EPIPE, "")
    return got
def race(target):
    # A name that is now ours, now a link to the neighbour's: whoever checks first and opens later
    # opens the wrong one. Here nobody but ourselves opens it, so all depends on the permissions.
    os.makedirs("race", exist_ok=True)
    end = time.time() + 1
    while time.time() < end:
        for step in (lambda: os.symlink(target, "race/at"), lambda: read("race/at"),
                     lambda: os.unlink("race/at")):
            try:
                got = step()
                if got:
                    return got
            except FileExistsError:
                os.unlink("race/at")
            except PermissionError:
                pass
    raise OSError(errno.EACCES, "")
def hard_link():
    os.link(cwd + "/private/secret", "linked")
    return read("linked")
def find_mark():
    # A job with a view of its own has mount points there, for its own directories.
    if "mark" not in os.listdir(work):
        raise FileNotFoundError(errno.ENOENT, "not there")
    return "the mark"

def find_cache():
    # A job may see the directory with its own project's cache in it.
    if os.path.basename(v["cache"]) not in os.listdir(os.path.dirname(v["cache"])):
        raise OSError(errno.ENOENT, "")
    return "found"
tries = {
    "its file": lambda: read(cwd + "/private/secret"),
    "write its file": lambda: write(cwd + "/private/secret"),
    "list its directory": lambda: os.listdir(cwd + "/private"),
    "plant a file": lambda: write(cwd + "/private/planted"),
    "remove its file": lambda: os.unlink(cwd + "/private/secret") or "removed",
    "rename its directory": lambda: os.rename(cwd + "/private", cwd + "/mine") or "renamed",
    "its file in /tmp": lambda: read("/tmp/neighbour-secret"),
    "remove its file in /tmp": lambda: os.unlink("/tmp/neighbour-secret") or "removed",
    "its shared memory file": lambda: read("/dev/shm/neighbour-secret"),
    "remove its shared memory": lambda: os.unlink("/dev/shm/neighbour-secret") or "removed",
    "its pipe": lambda: os.open(cwd + "/private/pipe", os.O_RDWR),
    "its socket": lambda: connect(cwd + "/private/socket"),
    "a symbolic link": lambda: (os.symlink(cwd + "/private", "way"), read("way/secret"))[1],
    "a symbolic link race": lambda: race(cwd + "/private/secret"),
    "a hard link": hard_link,
    "see that it runs": lambda: os.listdir("/proc").index(str(pid)) or "seen",
    "its command line": lambda: read(f"/proc/{pid}/cmdline"),
    "its status": lambda: read(f"/proc/{pid}/status"),
    "the agent's command line": lambda: read(f"/proc/{owner}/cmdline"),
    "its variables": lambda: read(f"/proc/{pid}/environ"),
    "its memory": lambda: read(f"/proc/{pid}/mem"),
    "its map of memory": lambda: read(f"/proc/{pid}/maps"),
    "its root": lambda: read(f"/proc/{pid}/root{cwd}/private/secret"),
    "its working directory": lambda: read(f"/proc/{pid}/cwd/private/secret"),
    "its descriptors": lambda: os.listdir(f"/proc/{pid}/fd"),
    "its open file": lambda: read(f"/proc/{pid}/fd/3"),
    "its program": lambda: os.readlink(f"/proc/{pid}/exe"),
    "its system call": lambda: read(f"/proc/{pid}/syscall"),
    "its stack": lambda: read(f"/proc/{pid}/stack"),
    "its score for the killer": lambda: write(f"/proc/{pid}/oom_score_adj"),
    "its descriptor by pidfd": lambda: call(438, 438, os.pidfd_open(pid), 3, 0),
    "signal it": lambda: os.kill(pid, 0) or "signalled",
    "signal by pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0) or "signalled",
    "signal its group": lambda: os.killpg(os.getpgid(pid), 0) or "signalled",
    "signal everybody": lambda: os.kill(owner, 0) or "signalled",
    "trace it": lambda: ok(libc.ptrace(0x4206, pid, None, None)),
    "its priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19) or "set",
    "its processors": lambda: os.sched_setaffinity(pid, {0}) or "set",
    "its schedule": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)) or "set",
    "its limits": lambda: ok(libc.prlimit(pid, 7, struct.pack("QQ", 64, 64), None)),
    "its shared segment": lambda: ok(libc.shmat(v["memory"], None, 0)),
    "its segment by key": lambda: ok(libc.shmget(0x42696c6c, 4096, 0o600)),
    "remove its segment": lambda: ok(libc.shmctl(v["memory"], 0, None)),
    "its queue": lambda: ok(libc.msgsnd(v["queue"], struct.pack("q8s", 1, b"planted"), 8, 0o4000)),
    "remove its queue": lambda: ok(libc.msgctl(v["queue"], 0, None)),
    "its semaphore": lambda: ok(libc.semctl(v["lock"], 0, 16, 1)),
    "its door for files": lambda: door(v["files"]),
    "the agent's place": find_mark,
    # A cache's name is a secret of its project: who knows it may use it.
    "its cache": find_cache,
    "a door into its cache": lambda: os.listdir(f"/proc/{pid}/cwd" + v["cache"]),
    "the agent's data": lambda: os.listdir(data + "/agent"),
    "its log": lambda: os.listdir(data + "/agent/tasks"),
    "the head's socket": lambda: connect(data + "/head.sock"),
    "the head's token": lambda: read(data + "/token"),
    "the key of secrets": lambda: read(data + "/secrets.key"),
    "the agent's variables": lambda: read(f"/proc/{owner}/environ"),
    "the agent's memory": lambda: read(f"/proc/{owner}/mem"),
    "trace the agent": lambda: ok(libc.ptrace(0x4206, owner, None, None)),
    "its control group": lambda: write("/sys/fs/cgroup/cgroup.procs"),
    "freeze control groups": lambda: write("/sys/fs/cgroup/freezer/billow/freezer.state"),
    "its keys": lambda: call(250, 219, 0, -4, 0),
    "its keys by list": lambda: read("/proc/keys") or (_ for _ in ()).throw(OSError(2, "empty")),
    "its page faults": lambda: call(323, 282, 1),
    "its requests by io_uring": lambda: call(425, 425, 8, ctypes.create_string_buffer(120)),
    "compare its descriptors": lambda: call(312, 272, pid, os.getpid(), 0, 3, 0),
    "move its pages": lambda: call(279, 239, pid, 0, None, None, None, 0),
    "advise its memory": lambda: call(440, 440, os.pidfd_open(pid), None, 0, 20, 0),
    "enter its namespaces": lambda: ok(libc.setns(os.pidfd_open(pid), 0x20000)),
}
out = {}
for name, attempt in tries.items():
    ctypes.set_errno(0)
    try:
        out[name] = "GOT " + repr(attempt())[:80]
    except OSError as e:
        out[name] = errno.errorcode.get(e.errno, str(e.errno))
    except (AttributeError, ValueError):
        out[name] = "absent"
print(json.dumps(out))
"""


class Neighbours:
    """A victim's job that runs, and an attacker's directory."""

    def __init__(self, rig):
        self.rig = rig
        self.tokens, self.dirs = {}, {}
        for user, account in (("ana", "nobody"), ("bo", "games")):
            entry = pwd.getpwnam(account)
            rig.ok("user", "create", user, "--unix-name", account)
            rig.ok("project", "create", f"of-{user}")
            rig.ok("project", "member", f"of-{user}", user)
            self.tokens[user] = rig.token_for(user)
            where = tempfile.mkdtemp(prefix=f"{user}-", dir="/var/tmp")
            os.chmod(where, 0o755)
            os.chown(where, entry.pw_uid, entry.pw_gid)
            self.dirs[user] = where
        self.write("ana", "victim.py", VICTIM)
        self.write("bo", "tries.py", TRIES)
        self.job = rig.cli(
            "submit", "--json", "--gpus", "0", "--cwd", self.dirs["ana"], "--", "/usr/bin/python3",
            "victim.py", env={"BILLOW_TOKEN": self.tokens["ana"]},
        ).json["id"]  # fmt: skip
        rig.wait_for(self.job, "running")
        poll(lambda: "{" in self.said(), "the victim's words")
        self.victim = json.loads(self.said().strip().splitlines()[-1])
        self.place = self.agents_place()
        self.write_mark()

    def write_mark(self):
        with open(os.path.join(self.place, "mark"), "w", encoding="ascii"):
            pass

    def agents_place(self):
        """Where the agent keeps the directories of jobs; agents of other tests have their own."""
        held = f"/proc/{self.rig.agent_pid()}/fd"
        for each in os.listdir(held):
            try:
                path = os.readlink(os.path.join(held, each)).split("/")
            except OSError:
                continue  # closed meanwhile
            if path[:3] == ["", "var", "tmp"] and path[3].startswith("billow-"):
                return "/".join(path[:4])
        raise AssertionError("the agent has no directory below /var/tmp")

    def write(self, user, name, text):
        path = os.path.join(self.dirs[user], name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o644)

    def said(self):
        return self.rig.ok("logs", self.job).text

    def words(self):
        return [json.dumps(self.victim), self.place, self.rig.data, str(self.rig.agent_pid())]

    def attack(self, *options, token=None):
        done = self.rig.cli(
            "run", "--gpus", "0", "--cwd", self.dirs["bo"], *options, "--", "/usr/bin/python3",
            "tries.py", *self.words(), timeout=120,
            env={"BILLOW_TOKEN": token or self.tokens["bo"]},
        )  # fmt: skip
        if done.code != 0:
            raise AssertionError(done)
        return json.loads(done.text.strip().splitlines()[-1])

    def unharmed(self, case):
        case.assertEqual(self.rig.job(self.job)["state"], "running")
        private = os.path.join(self.dirs["ana"], "private")
        case.assertEqual(sorted(os.listdir(private)), ["pipe", "secret", "socket"])
        with open(os.path.join(private, "secret"), encoding="utf-8") as f:
            case.assertEqual(f.read(), "the neighbour's own")

    def close(self):
        self.rig.cli("stop", "--force", self.job)
        for where in self.dirs.values():
            shutil.rmtree(where, True)
        for path in ("/tmp/neighbour-secret", "/dev/shm/neighbour-secret"):
            if os.path.exists(path):
                os.unlink(path)


@NEEDS_ROOT
class Plain(unittest.TestCase):
    """Both on the node's own file system."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.two = Neighbours(cls.rig)
        cls.addClassCleanup(cls.two.close)

    def check(self, got):
        self.assertGreaterEqual(len(got), 60)
        self.assertEqual({k: v for k, v in got.items() if v.startswith("GOT")}, {})
        self.two.unharmed(self)

    def test_a_plain_job_reaches_nothing_of_its_neighbour(self):
        self.check(self.two.attack())

    def test_a_confined_job_reaches_nothing_of_its_neighbour(self):
        """A job of a coding agent, which is confined further."""
        done = self.rig.ok(
            "token", "create", "--agent", "helper", "--budget", "20", "--per-job", "5", "--gpus",
            "1", "--expires", "8h", env={"BILLOW_TOKEN": self.two.tokens["bo"]},
        )  # fmt: skip
        self.check(self.two.attack(token=done.text.split()[0]))

    def test_outputs_do_not_follow_links_to_the_neighbours_files(self):
        """The node collects outputs after the job: what they lead to must be the job's own."""
        target = os.path.join(self.two.dirs["ana"], "private")
        script = (
            f"mkdir -p out; ln -s {target} out/way; ln -s {target}/secret out/secret;"
            f" ln -s /etc/shadow out/shadow; rm -rf swapped; mkdir swapped; echo mine > swapped/a;"
            f" rm -rf swapped; ln -s {target} swapped"
        )
        job = self.rig.cli(
            "submit", "--json", "--gpus", "0", "--cwd", self.two.dirs["bo"], "--output", "out",
            "--output", "swapped", "--", "sh", "-c", script,
            env={"BILLOW_TOKEN": self.two.tokens["bo"]},
        ).json["id"]  # fmt: skip
        poll(lambda: self.rig.job(job)["state"] in ("succeeded", "failed"), "the job's end", 60)
        into = tempfile.mkdtemp(dir=self.rig.root)
        for name in ("out", "swapped"):
            self.rig.cli("cp", f"{job}:{name}", into, env={"BILLOW_TOKEN": self.two.tokens["bo"]})
        for folder, _, names in os.walk(into):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    continue
                with open(path, "rb") as f:
                    text = f.read()
                self.assertNotIn(b"the neighbour's own", text, path)
                self.assertNotIn(b"root:", text, path)
        self.two.unharmed(self)

    def test_copies_do_not_follow_links_to_the_neighbours_files(self):
        target = os.path.join(self.two.dirs["ana"], "private")
        job = self.rig.cli(
            "submit", "--json", "--gpus", "0", "--cwd", self.two.dirs["bo"], "--", "sh", "-c",
            f"ln -sfn {target} lead; sleep 300", env={"BILLOW_TOKEN": self.two.tokens["bo"]},
        ).json["id"]  # fmt: skip
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        self.rig.wait_for(job, "running")
        poll(lambda: os.path.islink(os.path.join(self.two.dirs["bo"], "lead")), "the link")
        into = os.path.join(self.rig.root, "copied")
        self.rig.cli("cp", f"{job}:lead/secret", into, env={"BILLOW_TOKEN": self.two.tokens["bo"]})
        if os.path.isfile(into):
            with open(into, "rb") as f:
                self.assertNotIn(b"the neighbour's own", f.read())
        planted = self.rig.file("planted")
        with open(planted, "w", encoding="ascii") as f:
            f.write("planted")
        self.rig.cli("cp", planted, f"{job}:lead/", env={"BILLOW_TOKEN": self.two.tokens["bo"]})
        self.two.unharmed(self)


@NEEDS_ROOT
class FromAnImage(ImagePython):
    """The attacker in a container that root runs; the neighbour on the node's file system."""

    def test_a_container_of_root_reaches_nothing_of_its_neighbour(self):
        two = Neighbours(self.rig)
        self.addCleanup(two.close)
        directory = self.rig.file("neighbour")
        os.makedirs(directory)
        argv = "import sys; sys.argv = ['tries.py', *" + repr(two.words()) + "]\n"
        got = self.python_in(argv + TRIES, directory)
        self.assertGreaterEqual(len(got), 60)
        # Process numbers in there are its own, and so is the process with the victim's number.
        own = {k for k in got if got[k].startswith("GOT")} - OWN_PROCESSES
        self.assertEqual({k: got[k] for k in own}, {})
        two.unharmed(self)


class FromAnImageOfAUser(ImagePython):
    """The attacker in a container of its own; the neighbour on the node's file system."""

    def test_it_reaches_nothing_of_its_neighbour(self):
        two = Neighbours(self.rig)
        self.addCleanup(two.close)
        argv = "import sys; sys.argv = ['tries.py', *" + repr(two.words()) + "]\n"
        env = {"BILLOW_TOKEN": two.tokens["bo"]}
        for options in ((), ("--no-sync",), ("--network", "none")):
            with self.subTest(options):
                got = self.python_in(argv + TRIES, two.dirs["bo"], *options, env=env)
                self.assertGreaterEqual(len(got), 60)
                own = {k for k in got if got[k].startswith("GOT")} - OWN_PROCESSES
                self.assertEqual({k: got[k] for k in own}, {})
                two.unharmed(self)


# What a container's own processes allow each other, if one of them has the victim's number.
OWN_PROCESSES = {
    *("its variables", "its memory", "its map of memory", "its descriptors", "its program"),
    *("its system call", "signal it", "signal by pidfd", "signal its group", "signal everybody"),
    *("trace it", "its priority", "its processors", "its schedule", "its limits"),
}


if __name__ == "__main__":
    unittest.main()
