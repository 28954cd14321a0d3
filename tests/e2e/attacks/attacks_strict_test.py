"""Attacks from behind the wall of --isolation strict: on the kernel, on a neighbour's job, on the
node's network, and on other strict jobs of the same user. And what such a job still can do."""
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import unittest
import urllib.request

from attacks_image_test import ImagePython
from attacks_kernel_test import REFUSED, escapes
from attacks_neighbour_test import NEEDS_ROOT, TRIES, Neighbours
from rig import USUAL_POLICY, BILLOW, PROGRAMS_IN_TMP, Rig, poll

STRICT = ("--isolation", "strict")
# Errors that say: there is no such process, network or writable file on this side of the wall.
BEHIND = {*REFUSED, "EROFS", "ESRCH", "ENETUNREACH", "ECONNREFUSED"}

# What only a wall refuses. Prints "GOT …" or the error.
WALL = """
import errno, json, os, socket, sys, time
port, packets, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def connect(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(5)
    s.connect(address)
    s.send(b"x")
    time.sleep(0.2)  # where nobody listens the second packet is refused
    s.send(b"x")
    return "connected"
def none_of(things):
    if not things:
        raise OSError(errno.ENOENT, "")
    return things
def field(word):
    return [l.split()[1] for l in open("/proc/self/status") if l.startswith(word + ":")][0]
def not_zero(word):
    return none_of(int(field(word), 16))
inet, stream, datagram = socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
tries = {
    "a port of the node": lambda: connect(inet, stream, ("127.0.0.1", port)),
    "a packet to the node": lambda: connect(inet, datagram, ("127.0.0.1", packets)),
    "the internet": lambda: connect(inet, stream, ("1.1.1.1", 53)),
    "a name server": lambda: connect(inet, datagram, ("1.1.1.1", 53)),
    "the metadata service": lambda: connect(inet, stream, ("169.254.169.254", 80)),
    "an abstract socket": lambda: connect(socket.AF_UNIX, stream, "\\0" + name),
    "another device of the network": lambda: none_of(
        [l.split(":")[0] for l in open("/proc/net/dev") if ":" in l and "lo:" not in l]),
    "sockets of others": lambda: none_of(open("/proc/net/tcp").read().splitlines()[1:]),
    "the node's devices of the network": lambda: none_of(os.listdir("/sys/class/net")),
    "control groups": lambda: none_of(os.listdir("/sys/fs/cgroup")),
    "capabilities": lambda: not_zero("CapEff"),
    "permitted capabilities": lambda: not_zero("CapPrm"),
    "capabilities to come": lambda: not_zero("CapBnd"),
    "ambient capabilities": lambda: not_zero("CapAmb"),
    "new privileges": lambda: none_of(field("NoNewPrivs") != "1"),
    "all system calls": lambda: none_of(field("Seccomp") != "2"),
    "somebody's home": lambda: none_of(os.listdir("/home")),
    "root's home": lambda: none_of(os.listdir("/root")),
    "files in /tmp": lambda: none_of([n for n in os.listdir("/tmp") if n not in PROGRAMS]),
    "files in /var/tmp": lambda: none_of(
        [n for n in os.listdir("/var/tmp") if n not in os.getcwd().split("/")]),
    "shared memory": lambda: none_of(os.listdir("/dev/shm")),
    "the node's services": lambda: none_of(
        [n for n in os.listdir("/run") if not n.startswith("billow-as-user")]),
    "other processes": lambda: none_of([n for n in os.listdir("/proc") if n.isdigit()][8:]),
    "disks": lambda: none_of([n for n in os.listdir("/dev") if n.startswith(("sd", "vd", "nvme"))]),
    "the project's cache": lambda: none_of(os.environ.get("BILLOW_CACHE")),
    "write programs": lambda: open("/usr/bin/planted", "w").name,
    "a set-user-id file": lambda: (open("mine", "w").close(), os.chmod("mine", 0o4755))[1] or "set",
    "a device file": lambda: os.mknod("device", 0o020666, os.makedev(1, 5)) or "made",
    "give a file away": lambda: os.chown("tries.py", 1, 1) or "given",
}
out = {}
for what, attempt in tries.items():
    try:
        out[what] = "GOT " + repr(attempt())[:80]
    except OSError as e:
        out[what] = errno.errorcode.get(e.errno, str(e.errno))
print(json.dumps(out))
""".replace("PROGRAMS", repr(PROGRAMS_IN_TMP))

# What an ordinary program does: files, threads, its own network, moving files between directories.
WORK = """
import os, socket, subprocess, sys, threading
thread = threading.Thread(target=lambda: print("thread"))
thread.start()
thread.join()
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname(), 5)
os.makedirs("out/a")
open("made", "w").write(open("given").read().upper())
os.rename("made", "out/a/made")
open("/tmp/mine", "w").write("x")
open("/dev/shm/mine", "w").write("x")
subprocess.run(["sh", "-c", "echo child"], check=True)
print(os.environ.get("BILLOW_GPUS", "no GPU"))
sys.exit(3)
"""

# A strict job that offers all it has to whoever comes.
OPEN_HOUSE = """
import os, socket, time
os.umask(0)
for path in ("/tmp/open", "/dev/shm/open", "/var/tmp/open"):
    open(path, "w").write("take it")
keep = [socket.create_server(("127.0.0.1", 45677)), socket.socket(socket.AF_UNIX)]
keep[1].bind("\\0open-house")
keep[1].listen()
print("open", flush=True)
time.sleep(600)
"""
VISITOR = """
import os, socket
for path in ("/tmp/open", "/dev/shm/open", "/var/tmp/open"):
    print(os.path.exists(path))
for family, address in ((socket.AF_INET, ("127.0.0.1", 45677)), (socket.AF_UNIX, "\\0open-house")):
    try:
        socket.socket(family).connect(address)
        print("connected")
    except OSError:
        print(False)
"""


def through(got):
    return {name: result for name, result in got.items() if result.startswith("GOT")}


SERVER = """echo begins; mkdir /tmp/www; cd /tmp/www
printf 'from behind the wall' > page; exec python3 -m http.server 8123"""


def fetched(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=5) as answer:
            return answer.read()
    except OSError:
        return None


class Walled:
    """Runs programs behind the wall."""

    def __init__(self, rig, token=None, user=None):
        self.rig, self.token, self.user = rig, token, user

    def directory(self, case, **files):
        where = tempfile.mkdtemp(prefix="strict-", dir="/var/tmp")
        case.addCleanup(shutil.rmtree, where, True)
        os.chmod(where, 0o777)
        for name, text in files.items():
            with open(f"{where}/{name.replace('_py', '.py')}", "w", encoding="utf-8") as f:
                f.write(text)
        return where

    def cli(self, *words, cwd=None):
        env = {"BILLOW_TOKEN": self.token} if self.token else None
        return self.rig.cli(*words, cwd=cwd, env=env, user=self.user, timeout=120)

    def python(self, case, script, *words, options=()):
        where = self.directory(case, tries_py=script)
        command = ["run", *STRICT, *options, "--", "/usr/bin/python3", "tries.py", *words]
        done = self.cli(*command, cwd=where)
        case.assertEqual(done.code, 0, done)
        return json.loads(done.text.strip().splitlines()[-1])

    def try_the_wall(self, case, options=()):
        listening = socket.socket(socket.AF_UNIX)
        case.addCleanup(listening.close)
        listening.bind("")  # the kernel chooses an abstract name
        name = listening.getsockname()[1:].decode()
        listening.listen()
        server = socket.create_server(("127.0.0.1", 0))
        case.addCleanup(server.close)
        packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        case.addCleanup(packets.close)
        packets.bind(("127.0.0.1", 0))
        ports = [str(s.getsockname()[1]) for s in (server, packets)]
        got = self.python(case, WALL, *ports, name, options=options)
        case.assertGreaterEqual(len(got), 25)
        case.assertEqual(through(got), {})
        return got


@NEEDS_ROOT
class Strict(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.two = Neighbours(cls.rig)
        cls.addClassCleanup(cls.two.close)
        cls.walled = Walled(cls.rig, cls.two.tokens["bo"])

    def test_nothing_gets_through_the_wall(self):
        for options in ((), ("--network", "none"), ("--seccomp", "strict"), ("--gpus", "1")):
            with self.subTest(options=options):
                self.walled.try_the_wall(self, options)

    def test_nothing_gets_out_into_the_kernel(self):
        got = self.walled.python(self, escapes(self.rig.agent_pid(), 0))
        self.assertGreaterEqual(len(got), 60)
        # Inside, its number is 0, which is nobody outside.
        for name in ("become root", "become its group"):
            self.assertEqual(got.pop(name), "done")
        self.assertEqual({n: got[n] for n in got if got[n] not in BEHIND}, {})
        self.assertEqual(got["io_uring"], "ENOSYS")
        for name in ("user namespace", "userfaultfd", "session keyring", "bpf", "mount"):
            self.assertEqual(got[name], "EPERM", name)

    def test_it_reaches_nothing_of_its_neighbour(self):
        got = self.two.attack(*STRICT)
        self.assertGreaterEqual(len(got), 60)
        self.assertEqual(through(got), {})
        self.two.unharmed(self)

    def test_jobs_of_root_are_behind_the_wall_too(self):
        walled = Walled(self.rig)
        walled.try_the_wall(self)
        done = walled.cli("run", *STRICT, "--no-sync", "--", "cat", "/proc/self/uid_map")
        self.assertEqual(done.code, 0, done)
        self.assertGreaterEqual(int(done.text.split()[1]), 65536, "not an account of the machine")

    def test_two_strict_jobs_of_one_user_share_nothing(self):
        where = self.walled.directory(self, house_py=OPEN_HOUSE, visitor_py=VISITOR)
        command = ("submit", "--json", "--gpus", "0", *STRICT, "--", "/usr/bin/python3", "house.py")
        job = self.walled.cli(*command, cwd=where).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "open" in self.rig.cli("logs", job).text, "the open house", 60)
        command = ("run", "--gpus", "0", *STRICT, "--", "/usr/bin/python3", "visitor.py")
        done = self.walled.cli(*command, cwd=where)
        self.assertEqual(done.text, "False\n" * 5, done)
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.assertEqual(self.rig.json("describe", job)["isolation"], "strict")

    def test_its_work_is_done(self):
        where = self.walled.directory(self, work_py=WORK, given="in")
        done = self.walled.cli(
            *("submit", "--json", "--gpus", "1", *STRICT, "--output", "out"),
            *("--", "/usr/bin/python3", "work.py"),
            cwd=where,
        )
        job = done.json["id"]
        poll(lambda: self.rig.job(job)["state"] == "failed", "its end", 60)
        self.assertEqual(self.rig.ok("logs", job).text.split(), ["thread", "child", "0"])
        self.assertEqual(self.rig.job(job)["exit"]["code"], 3)
        self.assertEqual(self.walled.cli("cp", f"{job}:out", where + "/got").code, 0)
        with open(where + "/got/a/made", encoding="ascii") as f:
            self.assertEqual(f.read(), "IN")

    def test_its_owner_reaches_its_ports_and_is_told_that_ssh_does_not(self):
        command = ("submit", "--json", *STRICT, "--no-sync", "--", "sh", "-c", SERVER)
        job = self.walled.cli(*command).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "begins" in self.rig.cli("logs", job).text, "its start", 60)
        owner = {"BILLOW_TOKEN": self.walled.token}
        forward = self.rig.start("port-forward", job, "0:8123", env=owner)
        self.addCleanup(forward.stderr.close)
        self.addCleanup(forward.stdout.close)
        self.addCleanup(forward.wait)
        self.addCleanup(forward.terminate)
        local = int(forward.stdout.readline().decode().split(":")[1].split()[0])
        poll(lambda: fetched(local) == b"from behind the wall", "an answer", 60)
        done = self.walled.cli("ssh", job, "--", "true")
        self.assertNotEqual(done.code, 0)
        self.assertIn("ssh cannot enter it", done.errors)

    def test_what_would_not_be_a_wall_is_refused(self):
        where = self.walled.directory(self)
        for options, word in (
            (("--network", "host"), "exclude each other"),
            (("--network", "other"), "must be host|none|internet|project"),
            (("--nodes", "2"), "a gang needs a network"),
            (("--gpus", "0.5"), "a slice of a GPU is shared"),
            (("--suspendable", "yes"), "would leave its isolation"),
            (("--checkpoint-dir", "/var/tmp"), "a directory of the node"),
            (("--output", "out=s3://bucket/x"), "without a network"),
            (("--seccomp", "/nonexistent"), "use default, strict, or a file"),
        ):
            done = self.walled.cli("run", *STRICT, *options, "--", "true", cwd=where)
            self.assertIn(done.code, (1, 2), done)
            self.assertIn(word, done.errors + done.text)
        done = self.walled.cli("run", "--network", "none", "--", "true")
        self.assertIn("--isolation strict", done.errors)
        done = self.walled.cli("deploy", "walled", *STRICT, "--", "true", cwd=where)
        self.assertIn("an endpoint needs the network", done.errors)

    def test_a_project_can_require_it(self):
        self.rig.ok("project", "create", "strangers")
        self.rig.ok("project", "member", "strangers", "bo")
        done = self.rig.ok("project", "set", "strangers", "--isolation", "strict")
        self.assertIn("strict isolation", done.text)
        where = self.walled.directory(self)
        command = ("run", "--project", "strangers", "--gpus", "0")
        done = self.walled.cli(*command, "--", "true", cwd=where)
        self.assertEqual(done.code, 1, done)
        self.assertIn("add --isolation strict", done.errors)
        self.assertEqual(self.walled.cli(*command, *STRICT, "--", "true", cwd=where).code, 0)
        self.rig.ok("project", "set", "strangers", "--isolation", "plain")
        self.assertEqual(self.walled.cli(*command, "--", "true", cwd=where).code, 0)

    def test_a_node_can_require_it(self):
        usual = USUAL_POLICY + "\nroot root"
        self.addCleanup(self.rig.node_policy, usual)
        self.rig.node_policy(usual + "\nisolation strict")
        where = self.walled.directory(self)
        done = self.walled.cli("run", "--gpus", "0", "--", "true", cwd=where)
        self.assertEqual(done.code, 126, done)
        self.assertIn("strict isolation only", done.errors)
        done = self.walled.cli("run", "--gpus", "0", *STRICT, "--", "true", cwd=where)
        self.assertEqual(done.code, 0, done)


    def test_the_policy_counts_for_users_without_an_account(self):
        """A strict job needs none, and a head names whom it likes."""
        usual = USUAL_POLICY + "\nroot root"
        self.addCleanup(self.rig.node_policy, usual)
        self.rig.ok("user", "create", "zoe", "--unix-name", "nobody-here")
        self.rig.ok("project", "member", "default", "zoe")
        token = {"BILLOW_TOKEN": self.rig.token_for("zoe")}
        ran = ("run", "--gpus", "0", "--no-sync", "--cwd", "/", *STRICT, "--", "echo", "ran")
        for policy, runs in (
            ("deny daemon 2000", True),
            ("allow 1000-59999 nobody-here", True),
            ("deny nobody-here", False),
            ("allow @daemon", False),
            ("allow 0-4294967294", False),
            ("isolation strict\nallow games", False),
        ):
            with self.subTest(policy):
                self.rig.node_policy(policy)
                done = self.rig.cli(*ran, env=token)
                self.assertEqual((done.code, "ran" in done.text), (0 if runs else 126, runs), done)
                if not runs:
                    self.assertIn("this node's policy: jobs of nobody-here", done.errors)


@NEEDS_ROOT
class OnOnesOwnMachine(unittest.TestCase):
    """The agent runs as an ordinary person, and the job as the same account in a user namespace."""

    def test_nothing_gets_through_the_wall(self):
        rig = Rig(up=False, HOME="/nonexistent")
        self.addCleanup(rig.close)
        uid = pwd.getpwnam("nobody").pw_uid
        for path in (rig.root, rig.files):
            os.chown(path, uid, -1)
        started = rig.cli(
            "up", "--background", "--listen", "127.0.0.1:0", "--sim", rig.sim, user=uid
        )
        self.assertEqual(started.code, 0, started)
        Walled(rig, user=uid).try_the_wall(self)
        self.assertEqual(rig.cli("down", "--stop-jobs", user=uid).code, 0)


@NEEDS_ROOT
class WhereUsersHaveNoAccounts(unittest.TestCase):
    """A node of a cluster: jobs of users without an account run as a user that the node chose."""

    def setUp(self):
        self.rig = Rig(args=("--no-agent", "--tls"))
        self.addCleanup(self.rig.close)
        self.join("1234:1234", "far")
        poll(lambda: self.rig.json("nodes")["nodes"], "the node", 40)
        self.rig.ok("user", "create", "ana", "--unix-name", "nobody-here")
        self.rig.ok("project", "member", "default", "ana")

    def join(self, user, name):
        token = self.rig.ok("token", "create", "--node").text.strip()
        address = self.rig.json("status")["addresses"][0]
        where = ("--data", os.path.join(self.rig.root, name), "--node-name", name)
        return self.rig.start(
            *("join", address, "--token", token, *where, "--sim", "1xH100"),
            env={"BILLOW_WITHOUT_ACCOUNT": user},
        )

    def run_as(self, token, *words):
        env = {"BILLOW_TOKEN": token}
        return self.rig.cli("run", "--no-sync", "--cwd", "/", *words, env=env, timeout=60)

    def test_they_run_as_the_chosen_user(self):
        done = self.run_as(self.rig.token_for("ana"), "--", "id", "-u")
        self.assertEqual(done.text.strip(), "1234", done)

    def test_the_wall_stays_a_wall(self):
        done = self.run_as(
            self.rig.token_for("ana"), *STRICT, "--", "sh", "-c", "ls /sys/class/net; id -u"
        )
        self.assertEqual(done.code, 0, done)
        self.assertNotIn("1234", done.text)
        self.assertNotIn("eth", done.text)
        map_ = self.run_as(self.rig.token_for("ana"), *STRICT, "--", "cat", "/proc/self/uid_map")
        self.assertEqual(map_.code, 0, map_)
        self.assertGreaterEqual(int(map_.text.split()[1]), 65536, "not the chosen user")

    def test_the_policy_judges_the_chosen_user(self):
        self.rig.node_policy("allow 5000-6000")
        done = self.run_as(self.rig.token_for("ana"), "--", "true")
        self.assertEqual(done.code, 126, done)
        self.assertIn("this node's policy", done.errors)

    def test_numbers_from_the_head_are_no_account(self):
        """With them a head could add any group, such as that of the disks."""
        self.rig.ok("user", "create", "mal", "--unix-name", "4321:6")
        self.rig.ok("project", "member", "default", "mal")
        done = self.run_as(self.rig.token_for("mal"), "--", "id", "-G")
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("4321:6", done.errors)

    def test_a_user_that_is_no_number_ends_the_join(self):
        process = self.join("root:0", "wrong")
        said = process.communicate(timeout=20)[1].decode()
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("BILLOW_WITHOUT_ACCOUNT", said)


@NEEDS_ROOT
class WhereNobodyMayEnter(unittest.TestCase):
    def test_a_program_that_other_users_cannot_reach_is_told(self):
        where = tempfile.mkdtemp()  # only its owner may enter
        self.addCleanup(shutil.rmtree, where)
        built = os.path.dirname(os.path.dirname(BILLOW))
        for name in ("bin/billow", "bin/billow-supervise", "lib/libbillow-nvml-sim.so"):
            shutil.copy(os.path.join(built, name), where)
        rig = Rig(args=("--no-agent", "--tls"))
        self.addCleanup(rig.close)
        join = rig.command(
            *("join", rig.json("status")["addresses"][0]),
            *("--token", rig.ok("token", "create", "--node").text.strip()),
            *("--data", os.path.join(rig.root, "far")),
        )
        agent = subprocess.Popen([os.path.join(where, "billow"), *join[1:]], env=rig.environment)
        rig.started.append(agent)
        poll(lambda: rig.json("nodes")["nodes"], "the node", 40)
        done = rig.cli("run", "--no-sync", "--cwd", "/", *STRICT, "--", "true", timeout=60)
        self.assertEqual(done.code, 126, done)
        self.assertIn("a directory that everybody may enter", done.errors)


class FromAnImage(ImagePython):
    """A strict job in an image that nobody trusts."""

    def test_nothing_gets_through_the_wall(self):
        two = Neighbours(self.rig)
        self.addCleanup(two.close)
        for script, words in ((WALL, ["9", "9", "none"]), (TRIES, two.words())):
            directory = tempfile.mkdtemp(dir=self.rig.root)
            argv = "import sys; sys.argv = ['tries.py', *" + repr(words) + "]\n"
            got = self.python_in(argv + script, directory, *STRICT)
            # The image has a home directory of its own.
            self.assertIn(got.pop("somebody's home", "ENOENT"), ("ENOENT", "GOT ['app']"))
            self.assertEqual(through(got), {})
        two.unharmed(self)


# Names of calls, one on a line, that a job of its own choice must not use.
OWN_PROFILE = "# what this program never does\nsocket\n\nmkdir   # a comment\nmkdirat\n"
CALLS = """
import json, os, socket
out = {}
for name, attempt in (("socket", socket.socket), ("mkdir", lambda: os.mkdir("made"))):
    try:
        attempt()
        out[name] = "done"
    except OSError as e:
        out[name] = e.strerror
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
pid = os.fork()
if pid == 0:
    os._exit(0 if libc.ptrace(0, 0, None, None) == 0 else 1)
out["trace"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps(out))
"""


@NEEDS_ROOT
class Profiles(unittest.TestCase):
    """--seccomp: what it refuses, in plain and in strict jobs."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.rig.ok("user", "create", "ana", "--unix-name", "nobody")
        cls.rig.ok("project", "member", "default", "ana")
        cls.walled = Walled(cls.rig, cls.rig.token_for("ana"))

    def calls(self, walled, *options):
        where = walled.directory(self, calls_py=CALLS, profile=OWN_PROFILE)
        words = ("run", "--gpus", "0", *options, "--", "/usr/bin/python3", "calls.py")
        done = walled.cli(*words, cwd=where)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.text)

    def test_a_profile_refuses_what_it_names(self):
        free = {"socket": "done", "mkdir": "done", "trace": 0}
        refused = "Operation not permitted"
        for walled in (self.walled, Walled(self.rig)):  # of root, too, who is otherwise free
            for mode in ((), STRICT):
                with self.subTest(mode=mode, token=walled.token):
                    self.assertEqual(self.calls(walled, *mode), free)
                    got = self.calls(walled, *mode, "--seccomp", "strict")
                    self.assertEqual(got, {**free, "trace": 1})
                    got = self.calls(walled, *mode, "--seccomp", "profile")
                    self.assertEqual(got, {"socket": refused, "mkdir": refused, "trace": 0})

    def test_a_wrong_profile_is_refused_before_the_job(self):
        for text, word in (
            ("mkdri\n", 'did you mean "mkdir"'),
            ("# nothing\n", "names no system call"),
            ("\n".join(["mkdir"] * 300), "at most 256"),
        ):
            where = self.walled.directory(self, profile=text)
            done = self.walled.cli("run", "--seccomp", "profile", "--", "true", cwd=where)
            self.assertEqual(done.code, 2, done)
            self.assertIn(word, done.errors)

    def test_it_is_shown(self):
        where = self.walled.directory(self, profile=OWN_PROFILE)
        command = ("submit", "--json", "--gpus", "0", "--seccomp", "profile", "--", "true")
        job = self.walled.cli(*command, cwd=where).json["id"]
        seen = self.rig.json("describe", job)
        self.assertEqual(seen["refused_calls"], ["socket", "mkdir", "mkdirat"])


if __name__ == "__main__":
    unittest.main()
