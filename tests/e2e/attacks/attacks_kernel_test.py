"""Attacks on the kernel and on other processes of a node, by a job of another user, as plain job
and in an image: none gets through, and what programs need still works."""
import json
import os
import pwd
import unittest

from attacks_image_test import ImagePython
from rig import Rig, RigTest, poll

NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")

# Tries to get out, and prints what came of each try: "done", or the name of the error. What cannot
# be tried here prints "absent".
ESCAPES = """
import ctypes, errno, fcntl, json, os, platform, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
def call(numbers, *args):
    if libc.syscall(ctypes.c_long(numbers[0] if x86 else numbers[1]), *args) < 0:
        raise OSError(ctypes.get_errno(), "")
def ok(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
def in_child(work):
    # Whatever it changes about itself ends with it.
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            code = 0
        except OSError as e:
            code = e.errno or 255
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        raise OSError(code, "")
def opened(path, how=os.O_RDONLY):
    os.close(os.open(path, how))
none, buffer = None, ctypes.create_string_buffer(4096)
vector = struct.pack("PN", ctypes.addressof(buffer), 16)
class Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("size", ctypes.c_uint32), ("rest", ctypes.c_char * 120)]
tries = {
    "user namespace": lambda: in_child(lambda: ok(libc.unshare(0x10000000))),
    "network namespace": lambda: in_child(lambda: ok(libc.unshare(0x40000000))),
    "mount namespace": lambda: in_child(lambda: ok(libc.unshare(0x20000))),
    "clone into a user namespace": lambda: in_child(
        lambda: call((56, 220), 0x10000011, none, none, none, none)),
    "clone3": lambda: call((435, 435), buffer, 8),
    "setns": lambda: in_child(lambda: ok(libc.setns(os.open("/proc/self/ns/uts", 0), 0))),
    "mount": lambda: ok(libc.mount(b"none", b"/tmp", b"tmpfs", 0, none)),
    "remount": lambda: ok(libc.mount(none, b"/", none, 0x1020, none)),
    "umount": lambda: ok(libc.umount2(b"/proc", 2)),
    "pivot_root": lambda: call((155, 41), b"/", b"/"),
    "open_tree": lambda: call((428, 428), -100, b"/", 1),
    "fsopen": lambda: call((430, 430), b"tmpfs", 0),
    "session keyring": lambda: call((250, 219), 0, -3, 1),
    "user keyring": lambda: call((250, 219), 0, -4, 1),
    "add_key": lambda: call((248, 217), b"user", b"x", b"y", 1, -3),
    "request_key": lambda: call((249, 218), b"user", b"x", none, -3),
    "bpf": lambda: call((321, 280), 0, buffer, 48),
    "userfaultfd": lambda: call((323, 282), 1),
    "io_uring": lambda: call((425, 425), 8, ctypes.create_string_buffer(120)),
    "perf of all": lambda: call((298, 241), ctypes.byref(Event(1, 128)), -1, 0, -1, 0),
    "kexec": lambda: call((246, 104), 0, 0, none, 0),
    "kexec of a file": lambda: call((320, 294), 0, 0, 0, none, 0),
    "load a module": lambda: call((175, 105), buffer, 10, b""),
    "load a module file": lambda: call((313, 273), 0, b"", 0),
    "remove a module": lambda: call((176, 106), b"none", 0),
    "open by handle": lambda: call((304, 265), 0, buffer, 0),
    "swapon": lambda: ok(libc.swapon(b"/etc/passwd", 0)),
    "swapoff": lambda: ok(libc.swapoff(b"/etc/passwd")),
    "reboot": lambda: call((169, 142), 0, 0, 0, none),
    "acct": lambda: ok(libc.acct(none)),
    "quotactl": lambda: call((179, 60), 0x800002, none, 0, none),
    "kernel log": lambda: ok(libc.klogctl(3, buffer, 4096)),
    "clear the kernel log": lambda: ok(libc.klogctl(5, none, 0)),
    "set the clock": lambda: call((227, 112), 0, buffer),
    "set the time": lambda: call((164, 170), buffer, none),
    "executable data": lambda: in_child(lambda: ok(libc.personality(0x0400000))),
    "type for a terminal": lambda: fcntl.ioctl(os.openpty()[1], 0x5412, b"x"),
    "hypervisor": lambda: socket.socket(40, socket.SOCK_STREAM),
    "kernel ciphers": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
    "raw packets": lambda: socket.socket(17, socket.SOCK_RAW),
    "raw internet": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "host name": lambda: ok(libc.sethostname(b"mine", 4)),
    "chroot": lambda: os.chroot("/tmp"),
    "become root": lambda: os.setuid(VICTIM_UID),
    "become its group": lambda: os.setgid(VICTIM_UID),
    "groups": lambda: os.setgroups([VICTIM_UID]),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    "device file": lambda: os.mknod("/tmp/billow-device", 0o020666, os.makedev(1, 1)),
    "memory of the machine": lambda: opened("/dev/mem"),
    "kernel messages": lambda: opened("/dev/kmsg", os.O_RDWR),
    "sysrq": lambda: opened("/proc/sysrq-trigger", os.O_WRONLY),
    "kernel settings": lambda: opened("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "kernel memory": lambda: opened("/proc/kcore"),
    "signal": lambda: os.kill(VICTIM, 0),
    "trace": lambda: call((101, 117), 0x4206, VICTIM, none, none),
    "read its memory": lambda: call((310, 270), VICTIM, vector, 1, vector, 1, 0),
    "its variables": lambda: opened(f"/proc/{VICTIM}/environ"),
    "its memory": lambda: opened(f"/proc/{VICTIM}/mem", os.O_RDWR),
    "its directory": lambda: os.listdir(f"/proc/{VICTIM}/cwd/"),
    "its files": lambda: os.listdir(f"/proc/{VICTIM}/fd"),
    "its descriptors": lambda: call((438, 438), os.pidfd_open(VICTIM), 0, 0),
    "its priority": lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19),
    "its processors": lambda: os.sched_setaffinity(VICTIM, {0}),
    "its limits": lambda: call((302, 261), VICTIM, 7, struct.pack("QQ", 64, 64), none),
    "its control group": lambda: opened("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY),
    "another control group": lambda: os.mkdir("/sys/fs/cgroup/unified/billow/mine"),
    "passwords": lambda: opened("/etc/shadow"),
    "accounts": lambda: opened("/etc/passwd", os.O_WRONLY),
}
out = {}
for name, attempt in tries.items():
    ctypes.set_errno(0)
    try:
        attempt()
        out[name] = "done"
    except OSError as e:
        out[name] = errno.errorcode.get(e.errno, str(e.errno))
    except (AttributeError, PermissionError) as e:
        out[name] = "absent"
print(json.dumps(out))
"""

# With another error the call itself would have been allowed.
REFUSED = ("EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT", "ENOENT")

# What programs of jobs do.
WORK = """
import ctypes, json, multiprocessing, os, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
out = {}
thread = threading.Thread(target=lambda: out.update(thread="done"))
thread.start()
thread.join()
out["process"] = subprocess.run(["echo", "done"], stdout=-1).stdout.decode().strip()
pid = os.fork()
if pid == 0:
    os._exit(0 if libc.ptrace(0, 0, None, None) == 0 else 1)
out["traced"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
os.mkdir("shared")
os.chmod("shared", 0o2775)
out["setgid"] = oct(os.stat("shared").st_mode & 0o7777)
out["personality"] = libc.personality(0xffffffff) >= 0
os.setxattr("shared", "user.note", b"x")
out["attributes"] = os.getxattr("shared", "user.note").decode()
print(json.dumps(out))
"""


@NEEDS_ROOT
class Plain(RigTest):
    """A job on the node's own file system."""

    options = {"sim": "1xH100"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.token = token_of(cls.rig)
        cls.work = directory_of(cls.rig)

    def python(self, script):
        return python(self.rig, self.token, self.work, script)

    def test_nothing_gets_out(self):
        got = self.python(escapes(self.rig.agent_pid(), 0))
        self.assertGreaterEqual(len(got), 60)
        self.assertEqual({n: got[n] for n in got if got[n] not in REFUSED}, {})
        for name in ("user namespace", "session keyring", "userfaultfd", "hypervisor", "bpf"):
            self.assertIn(got[name], ("EPERM", "EAFNOSUPPORT"), name)
        self.assertEqual(got["io_uring"], "ENOSYS")

    def test_what_programs_need_works(self):
        got = self.python(WORK)
        self.assertEqual(
            got,
            {
                "thread": "done",
                "process": "done",
                "traced": 0,
                "setgid": "0o2775",
                "personality": True,
                "attributes": "x",
            },
        )

    def test_doctor_shows_what_is_refused(self):
        done = self.rig.cli("doctor", "--isolation", "--json")
        texts = [f["text"] for f in done.json["findings"]]
        self.assertGreaterEqual(len([t for t in texts if t.startswith("refused: ")]), 25, texts)
        strict = [t for t in texts if t.startswith("strict: refused: ")]
        self.assertGreaterEqual(len(strict), 25, texts)
        self.assertEqual([t for t in texts if "a job can" in t or "cannot run here" in t], [])
        self.assertEqual([g for g in os.listdir("/sys/fs/cgroup") if "doctor" in g], [])

    def test_hooks_are_confined_like_the_job(self):
        """They run beside the job, and would be a way around."""
        left = os.path.join(self.work, "hooked")
        hook = f"unshare -U true && echo out > {left} || echo in > {left}"
        job = self.rig.cli(
            *("submit", "--json", "--cwd", self.work, "--spot", "--suspend-hook", hook),
            *("--", "sleep", "600"),
            env={"BILLOW_TOKEN": self.token},
        ).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        self.rig.wait_for(job, "running")
        poll(lambda: self.rig.cli("suspend", job).code == 0, "the suspend")
        poll(lambda: os.path.exists(left) and os.path.getsize(left), "the hook", 60)
        with open(left, encoding="ascii") as f:
            self.assertEqual(f.read(), "in\n")


@NEEDS_ROOT
class Allowed(unittest.TestCase):
    def test_namespaces_where_the_administrator_allows_them(self):
        rig = Rig(sim="1xH100", up=False)
        self.addCleanup(rig.close)
        rig.up("--allow-namespaces")
        got = python(rig, token_of(rig), directory_of(rig), escapes(rig.agent_pid(), 0))
        self.assertEqual(got["user namespace"], "done")
        self.assertEqual(got["io_uring"], "ENOSYS")
        self.assertEqual(got["session keyring"], "EPERM")


class InImage(ImagePython):
    """A container that root runs."""

    def test_nothing_gets_out(self):
        directory = self.rig.file("escapes")
        os.makedirs(directory)
        # Its own root may be root inside, and sees its own processes alone.
        harmless = {"become root", "become its group", "chroot", "signal", "its directory"}
        got = self.python_in(escapes(1, 0), directory)
        through = {name for name, result in got.items() if result == "done"} - harmless
        self.assertEqual(through - OWN_INSIDE, set(), got)


class InImageOfAUser(ImagePython):
    """A container of an ordinary user, in a user namespace of that user's."""

    def test_nothing_gets_out(self):
        token, directory = token_of(self.rig), directory_of(self.rig)
        env = {"BILLOW_TOKEN": token}
        agent = self.rig.agent_pid()
        for options in ((), ("--no-sync",), ("--seccomp", "strict"), ("--network", "none")):
            with self.subTest(options):
                got = self.python_in(escapes(agent, 0), directory, *options, env=env)
                self.assertGreaterEqual(len(got), 60)
                through = {name for name, result in got.items() if result == "done"}
                self.assertEqual(through - INSIDE_OF_A_USER, set(), got)
                self.assertEqual(got["io_uring"], "ENOSYS")


# Its own root is a number of this user's alone: what it becomes inside is nobody outside.
INSIDE_OF_A_USER = {"become root", "become its group", "chroot"}

# What the first process of a container, which is the job's, allows its own user.
OWN_INSIDE = {
    *("trace", "read its memory", "its variables", "its memory", "its files", "its descriptors"),
    *("its priority", "its processors", "its limits", "passwords", "accounts", "groups"),
}


def escapes(victim, uid):
    return f"VICTIM, VICTIM_UID = {victim}, {uid}\n" + ESCAPES


def token_of(rig):
    """Of a user whose jobs run as nobody."""
    rig.ok("user", "create", "ana", "--unix-name", "nobody")
    rig.ok("project", "create", "red")
    rig.ok("project", "member", "red", "ana")
    return rig.json("token", "create", "ana-token", "--user", "ana")["token"]


def directory_of(rig):
    nobody = pwd.getpwnam("nobody")
    path = os.path.join(rig.root, "work")
    os.mkdir(path)
    os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return path


def python(rig, token, directory, script):
    path = os.path.join(directory, "try.py")
    with open(path, "w", encoding="ascii") as f:
        f.write(script)
    os.chmod(path, 0o644)
    done = rig.ok(
        *("run", "--cwd", directory, "--", "/usr/bin/python3", path),
        env={"BILLOW_TOKEN": token},
        timeout=120,
    )
    return json.loads(done.text)
