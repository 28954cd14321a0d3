"""Attacks on a node, by accounts of the machine and by jobs: each is carried out as somebody else
would, and must fail."""
import base64
import hashlib
import json
import os
import pwd
import socket
import stat
import subprocess
import tempfile
import textwrap
import time
import unittest

from box_test import ImageTest
from rig import BILLOW, Rig, RigTest, poll

PYTHON = "/usr/bin/python3"  # that others can execute too
NOBODY = pwd.getpwnam("nobody")
NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, to be several users")


def as_nobody(*command, **options):
    """A command of an account that has nothing to do with Billow."""
    return subprocess.run(
        list(command),
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        capture_output=True,
        cwd="/",
        check=False,
        timeout=60,
        **options,
    )


def old_name(agent_data, prefix, digits):
    """Names that could be computed from the data directory alone."""
    return prefix + hashlib.sha256(agent_data.encode()).hexdigest()[:digits]


@NEEDS_ROOT
class Places(unittest.TestCase):
    """A directory that somebody else made first where the agent keeps what jobs must reach."""

    def setUp(self):
        self.rig = Rig(sim="1xH100", up=False)
        self.addCleanup(self.rig.close)
        self.agent_data = os.path.join(self.rig.data, "agent")

    def test_a_link_in_a_squatted_directory_leads_nowhere(self):
        squatted = old_name(self.agent_data, "/var/tmp/billow-", 12)
        victim = os.path.join(self.rig.root, "victim")
        os.makedirs(victim, mode=0o700)
        self.addCleanup(subprocess.run, ["rm", "-rf", squatted], check=False)
        script = f"mkdir -m 711 {squatted} && ln -s {victim} {squatted}/caches && ls {squatted}"
        self.assertEqual(as_nobody("sh", "-c", script).stdout, b"caches\n")
        self.rig.up()
        done = self.rig.ok("run", "--", "sh", "-c", "echo $BILLOW_CACHE; touch $BILLOW_CACHE/mine")
        cache = done.text.strip()
        self.assertFalse(cache.startswith(squatted), cache)
        self.assertEqual(os.listdir(victim), [], "the agent followed another user's link")
        self.assertEqual(
            os.listdir(squatted), ["caches"], "the agent used another user's directory"
        )
        place = os.path.dirname(os.path.dirname(cache))
        self.assertEqual((os.stat(place).st_uid, os.stat(place).st_mode & 0o7777), (0, 0o711))
        self.assertEqual(as_nobody("ls", place).returncode, 2, "others can list it")
        # The next agent finds its own directory again.
        self.rig.ok("down")
        poll(lambda: not self.rig.processes(), "everything down")
        self.rig.up()
        again = self.rig.ok("run", "--", "sh", "-c", "ls $BILLOW_CACHE").text
        self.assertEqual(again, "mine\n")

    def test_a_directory_of_an_older_agent_is_kept_where_it_is_ours(self):
        kept = old_name(self.agent_data, "/var/tmp/billow-", 12)
        os.makedirs(kept, mode=0o711)
        self.addCleanup(subprocess.run, ["rm", "-rf", kept], check=False)
        self.rig.up()
        cache = self.rig.ok("run", "--", "sh", "-c", "echo $BILLOW_CACHE").text.strip()
        self.assertTrue(cache.startswith(kept + "/"), cache)

    def refused(self, *join, command=None):
        """What an agent says that does not start."""
        rig = Rig(sim="1xH100", args=("--no-agent",))
        try:
            token = rig.ok("token", "create", "--node").text.strip()
            run = [*(command or []), BILLOW, "join", rig.json("status")["addresses"][0]]
            done = subprocess.run(
                [*run, "--token", token, "--sim", "1xH100", *join],
                env=rig.environment,
                capture_output=True,
                timeout=20,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.fail("the agent started, and runs")
        finally:
            rig.close()
        self.assertNotEqual(done.returncode, 0, done)
        return done.stderr.decode()

    def test_an_agent_whose_data_directory_is_not_its_own_does_not_start(self):
        data = tempfile.mkdtemp(prefix="billow-attack-")
        self.addCleanup(subprocess.run, ["rm", "-rf", data], check=False)
        os.chmod(data, 0o755)
        os.makedirs(os.path.join(data, "node"))
        os.chown(os.path.join(data, "node"), NOBODY.pw_uid, NOBODY.pw_gid)
        said = self.refused("--data", data)
        self.assertIn(f"belongs to uid {NOBODY.pw_uid}", said)
        os.chown(os.path.join(data, "node"), 0, 0)
        os.chmod(os.path.join(data, "node"), 0o777)
        said = self.refused("--data", data)
        self.assertIn("other users can write", said)

    def test_an_agent_starts_nowhere_where_others_can_replace_its_files(self):
        data = tempfile.mkdtemp(prefix="billow-attack-")
        self.addCleanup(subprocess.run, ["rm", "-rf", data], check=False)
        unsafe = ["unshare", "-m", "sh", "-c"]
        unsafe += ['mount -t tmpfs -o mode=0777 none /var/tmp && exec "$0" "$@"']
        said = self.refused("--data", data, command=unsafe)
        self.assertIn("users can replace each other's files in /var/tmp", said)
        self.assertIn("chmod +t /var/tmp", said)


# Connects as often as told; the agent's end closes each connection.
STRANGER = """
import socket, sys
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    try:
        s.connect(sys.argv[1] if sys.argv[1].startswith("/") else "\\0" + sys.argv[1])
        s.recv(16)
    except OSError as e:
        print(e.errno)
        sys.exit(3)
    s.close()
"""


@NEEDS_ROOT
class Sockets(RigTest):
    """An account without a job connects to the agent's sockets as often as it likes."""

    options = {"sim": "1xH100"}

    def setUp(self):
        # As on any busy machine: whatever looks through all processes takes its time.
        crowd = [subprocess.Popen(["sleep", "600"]) for _ in range(150)]
        self.addCleanup(lambda: [p.kill() or p.wait() for p in crowd])
        shown = self.rig.ok(
            "run", "--sync", "--", "sh", "-c", "echo $BILLOW_FILES_SOCKET $BILLOW_AGENT_SOCKET"
        )
        self.sockets = shown.text.split()
        self.assertEqual(len(self.sockets), 2)

    def reads(self):
        with open(f"/proc/{self.rig.agent_pid()}/io", encoding="ascii") as f:
            return int(next(line for line in f if line.startswith("syscr")).split()[1])

    def test_a_strangers_connection_costs_the_agent_nothing(self):
        job = self.rig.submit("--", "sleep", "600")
        self.rig.wait_for(job, "running")
        for path in self.sockets:
            times = 200
            began, before = time.monotonic(), self.reads()
            done = as_nobody(PYTHON, "-c", STRANGER, path, str(times))
            took, after = time.monotonic() - began, self.reads()
            self.assertEqual(done.returncode, 0, done)
            self.assertLess(after - before, 10 * times, f"reads for {times} strangers, {took} s")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_jobs_run_during_a_flood(self):
        flood = [
            subprocess.Popen(
                [PYTHON, "-c", STRANGER, path, "1000000"],
                user=NOBODY.pw_uid,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for path in (*self.sockets, self.sockets[0])
        ]
        try:
            for _ in range(5):
                began = time.monotonic()
                self.rig.ok("run", "--", "true")
                self.assertLess(time.monotonic() - began, 10)
            with open(self.rig.file("sent"), "w", encoding="ascii") as f:
                f.write("along")
            done = self.rig.ok("run", "--sync", "--", "cat", "sent", timeout=60)
            self.assertEqual(done.text, "along")
        finally:
            for process in flood:
                process.kill()
                process.wait()
        self.assertEqual(self.rig.json("nodes")["nodes"][0]["state"], "ready")

    def test_the_sockets_names_are_not_shown_to_others(self):
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
            shown = f.read()
        for path in self.sockets:
            self.assertTrue(path.startswith("/"), path)
            self.assertNotIn(os.path.basename(os.path.dirname(path)), shown)
        agent_data = os.path.join(self.rig.data, "agent")
        self.assertNotIn(old_name(agent_data, "billow-files-", 16), shown)
        self.assertNotIn(old_name(agent_data, "billow-agent-", 16), shown)

    def test_a_name_taken_by_somebody_else_takes_no_files_away(self):
        rig = Rig(sim="1xH100", up=False)
        self.addCleanup(rig.close)
        name = old_name(os.path.join(rig.data, "agent"), "billow-files-", 16)
        with socket.socket(socket.AF_UNIX) as squatter:
            squatter.bind("\0" + name)
            squatter.listen(16)
            rig.up()
            with open(rig.file("sent"), "w", encoding="ascii") as f:
                f.write("along")
            done = rig.cli("run", "--sync", "--", "cat", "sent", timeout=60)
            self.assertEqual((done.code, done.text), (0, "along"), done)


class Space:
    """A network of its own with a cloud's metadata service, kept by a process in it."""

    ADDRESSES = ("169.254.169.254/32", "168.63.129.16/32", "10.20.30.40/32")
    ADDRESSES6 = ("fd00:ec2::254/128", "fe80::a9fe:a9fe/64", "fd77::1/128")
    SERVER = textwrap.dedent(
        """
        import selectors, socket
        wait = selectors.DefaultSelector()
        for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            for port in (80, 53):
                tcp = socket.socket(family)
                if family == socket.AF_INET6:
                    tcp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tcp.bind((host, port)); tcp.listen(64)
                wait.register(tcp, selectors.EVENT_READ, "tcp")
                udp = socket.socket(family, socket.SOCK_DGRAM)
                if family == socket.AF_INET6:
                    udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                udp.bind((host, port))
                wait.register(udp, selectors.EVENT_READ, "udp")
        print("ready", flush=True)
        while True:
            for key, _ in wait.select():
                if key.data == "tcp":
                    peer, _ = key.fileobj.accept()
                    peer.sendall(b"credentials"); peer.close()
                else:
                    _, who = key.fileobj.recvfrom(2048)
                    key.fileobj.sendto(b"credentials", who)
        """
    )

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="billow-metadata-")
        setup = "ip link set lo up" + "".join(
            f" && ip addr add {a} dev lo" for a in (*self.ADDRESSES, *self.ADDRESSES6)
        )
        self.keeper = subprocess.Popen(
            [
                *("unshare", "-n", "-m", "--propagation", "private", "sh", "-c"),
                f'{setup} && mount -t cgroup2 none {self.folder} && exec "$@"',
                *("sh", PYTHON, "-c", self.SERVER),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.usable = self.keeper.stdout.readline() == b"ready\n"

    def inside(self, *command):
        return ["nsenter", "-t", str(self.keeper.pid), "-n", "-m", *command]

    def close(self):
        self.keeper.kill()
        self.keeper.wait()
        self.keeper.stdout.close()
        os.rmdir(self.folder)


# Prints for each try what came of it: what the service said, or the number of the error.
ASK = """
import errno, json, socket, sys
def tcp(family, host, port, protocol=0):
    s = socket.socket(family, socket.SOCK_STREAM, protocol)
    s.settimeout(3)
    s.connect((host, port, 0, SCOPE) if host.startswith("fe80") else (host, port))
    return s.recv(64).decode()
def udp(family, host, port, connected=False):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(3)
    to = (host, port, 0, SCOPE) if host.startswith("fe80") else (host, port)
    if connected:
        s.connect(to)
        s.send(b"?")
    else:
        s.sendto(b"?", to)
    return s.recv(64).decode()
SCOPE = socket.if_nametoindex("lo")
v4, v6 = socket.AF_INET, socket.AF_INET6
out = {}
for name, call in {
    "plain": lambda: tcp(v4, "10.20.30.40", 80),
    "plain6": lambda: tcp(v6, "fd77::1", 80),
    "tcp": lambda: tcp(v4, "169.254.169.254", 80),
    "azure": lambda: tcp(v4, "168.63.129.16", 80),
    "mapped": lambda: tcp(v6, "::ffff:169.254.169.254", 80),
    "tcp6": lambda: tcp(v6, "fd00:ec2::254", 80),
    "link6": lambda: tcp(v6, "fe80::a9fe:a9fe", 80),
    "mptcp": lambda: tcp(v4, "169.254.169.254", 80, 262),
    "udp": lambda: udp(v4, "169.254.169.254", 80),
    "udp-connected": lambda: udp(v4, "169.254.169.254", 80, True),
    "udp6": lambda: udp(v6, "fd00:ec2::254", 80),
    "udp-mapped": lambda: udp(v6, "::ffff:169.254.169.254", 80),
    "names": lambda: udp(v4, "169.254.169.254", 53),
    "names-tcp": lambda: tcp(v4, "169.254.169.254", 53),
    "names6": lambda: udp(v6, "fd00:ec2::254", 53),
}.items():
    try:
        out[name] = call()
    except socket.timeout:
        out[name] = "silence"
    except OSError as e:
        out[name] = errno.errorcode.get(e.errno, str(e.errno))
print(json.dumps(out))
"""


@NEEDS_ROOT
class Metadata(unittest.TestCase):
    """A job asks the cloud's metadata service for the machine's credentials."""

    OPEN = ("plain", "plain6", "names", "names-tcp", "names6")

    def ask(self, *options):
        space = Space()
        self.addCleanup(space.close)
        if not space.usable:
            self.skipTest("no network of its own can be made here")
        rig = Rig(sim="1xH100", up=False)
        self.addCleanup(rig.close)
        rig.command = lambda *args: space.inside(BILLOW, *map(str, args))
        rig.up(*options)
        doctor = rig.ok("doctor", "--json").text
        if "metadata guard: not available" in doctor:
            self.skipTest("this kernel attaches no BPF programs to control groups: " + doctor)
        with open(rig.file("ask.py"), "w", encoding="utf-8") as f:
            f.write(ASK)
        return json.loads(rig.ok("run", "--", "python3", rig.file("ask.py"), timeout=120).text)

    def test_jobs_do_not_reach_it(self):
        got = self.ask()
        for name in self.OPEN:
            self.assertEqual(got.pop(name), "credentials", name)
        self.assertIn(got.pop("mptcp"), ("EPERM", "silence", "EPROTONOSUPPORT", "ENOPROTOOPT"))
        self.assertEqual(got, {name: "EPERM" for name in got})

    def test_jobs_reach_it_where_the_administrator_allows_it(self):
        got = self.ask("--allow-metadata")
        for name in ("plain", "tcp", "tcp6", "udp", "names"):
            self.assertEqual(got[name], "credentials", name)


# A job that listens at an address of the node, in a network of its own; after the first connection
# a thread that never left the node's network becomes the process, with the socket.
SWAP = """
import ctypes, fcntl, os, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def unshare(what):
    if libc.unshare(what) != 0:
        sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
uid, gid = os.getuid(), os.getgid()
unshare(0x10000000)
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
    with open("/proc/self/" + name, "w") as f:
        f.write(text)
go = threading.Event()
def late():
    go.wait()
    os.execv("/bin/sh", ["sh", "-c", "echo switched; exec sleep 600"])
threading.Thread(target=late).start()
unshare(0x40000000)
any = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(any, 0x8914, struct.pack("16sH14x", b"lo", 0x49))
address = struct.pack("16sH2s4s8x", b"lo:1", socket.AF_INET, b"", socket.inet_aton(sys.argv[1]))
fcntl.ioctl(any, 0x8916, address)
server = socket.create_server((sys.argv[1], 80))
os.set_inheritable(server.fileno(), True)
print("listens", flush=True)
peer = server.accept()[0]
peer.sendall(b"mine")
peer.close()
go.set()
time.sleep(600)
"""


@NEEDS_ROOT
class Tunnels(unittest.TestCase):
    """A job makes the agent's tunnels lead elsewhere: the agent is root, and no guard is on it."""

    ASK = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10);"
        " s.settimeout(3); print(s.recv(64).decode())"
    )

    def setUp(self):
        self.space = Space()
        self.addCleanup(self.space.close)
        if not self.space.usable:
            self.skipTest("no network of its own can be made here")
        self.rig = Rig(sim="1xH100", up=False)
        self.addCleanup(self.rig.close)
        self.rig.command = lambda *args: self.space.inside(BILLOW, *map(str, args))
        self.rig.up()

    def listening(self, address):
        """A job that listens there, and a tunnel to its port 80."""
        script = self.rig.file("swap.py")
        with open(script, "w", encoding="ascii") as f:
            f.write(SWAP)
        job = self.rig.submit("--", "python3", script, address)
        poll(lambda: "listens" in self.rig.cli("logs", job).text, "the job", 60)
        forward = self.rig.start("port-forward", job, "0:80")
        self.addCleanup(lambda: (forward.terminate(), forward.wait(), forward.stdout.close()))
        local = forward.stdout.readline().decode().split()[0].split(":")[1]
        return job, local

    def ask(self, local):
        done = subprocess.run(
            self.space.inside(PYTHON, "-c", self.ASK, local),
            capture_output=True,
            check=False,
            timeout=60,
        )
        return done.stdout.decode().strip()

    def test_they_stay_in_the_network_where_the_job_listens(self):
        job, local = self.listening("10.20.30.40")
        self.assertEqual(self.ask(local), "mine")
        poll(lambda: "switched" in self.rig.cli("logs", job).text, "the switch", 60)
        self.assertNotEqual(self.ask(local), "credentials")


# Leaves what gives its owner's rights to whoever executes it, in every way there is; prints what
# came of each.
LEAVE = """
import ctypes, errno, json, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    if libc.syscall(ctypes.c_long(number), *args) < 0:
        raise OSError(ctypes.get_errno(), "")
here, x86 = -100, platform.machine() == "x86_64"
def fresh(name):
    with open(name, "w") as f:
        f.write("#!/bin/sh")
    return name.encode()
def after_clone(body):
    # In a user namespace of its own a process has every capability.
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open("/proc/self/" + name, "w") as f:
            f.write(text)
    body()
capability = struct.pack("<IIIII", 0x02000001, 0xffffffff, 0, 0xffffffff, 0)
how = struct.pack("<QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
tries = {
    "plain": lambda: os.chmod(fresh("a"), 0o755),
    "chmod": lambda: os.chmod(fresh("b"), 0o4755),
    "given": lambda: os.chmod("given", 0o4755),
    "setgid": lambda: os.chmod(fresh("c"), 0o2755),
    "fchmod": lambda: os.fchmod(os.open(fresh("d"), os.O_RDWR), 0o4755),
    "fchmodat2": lambda: call(452, here, fresh("e"), 0o4755, 0),
    "open": lambda: os.open("f", os.O_CREAT | os.O_WRONLY, 0o4755),
    "openat2": lambda: call(437, here, b"g", how, len(how)),
    "mknod": lambda: os.mknod("h", 0o104755),
    "device": lambda: os.mknod("i", 0o020666, os.makedev(1, 1)),
    "disk": lambda: os.mknod("j", 0o060666, os.makedev(8, 0)),
    "capability": lambda: os.setxattr(fresh("k"), "security.capability", capability),
    "fsetxattr": lambda: os.setxattr(os.open(fresh("l"), os.O_RDWR), "security.capability", capability),
    "setxattrat": lambda: call(463, here, fresh("m"), 0, b"security.capability", capability, 20),
    "io_uring": lambda: call(425, 8, ctypes.create_string_buffer(120)),
    "namespace": lambda: after_clone(
        lambda: os.setxattr(fresh("n"), "security.capability", capability)),
}
out = {}
for name, attempt in tries.items():
    try:
        attempt()
        out[name] = "done"
    except OSError as e:
        out[name] = errno.errorcode.get(e.errno, str(e.errno))
print(json.dumps(out))
"""


class Containers(ImageTest):
    """An image that root runs, as everybody does who follows the tour: what is in it is not
    trusted."""

    def test_it_kills_no_process_of_the_node(self):
        victim = subprocess.Popen(["sleep", "600"])
        try:
            self.sh(
                f"kill -9 {victim.pid}; kill -TERM {victim.pid}; echo 500 >"
                f" /proc/{victim.pid}/oom_score_adj; true"
            )
            self.assertIsNone(victim.poll(), "the image killed a process of the node")
            with open(f"/proc/{victim.pid}/oom_score_adj", encoding="ascii") as f:
                self.assertEqual(f.read().strip(), "0")
        finally:
            victim.kill()
            victim.wait()

    def test_it_sees_its_own_processes_alone(self):
        done = self.sh("ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '")
        self.assertLess(int(done.text.split()[0]), 8, done)
        self.assertIn("init", done.text)

    def test_it_has_no_part_of_the_nodes_shared_memory(self):
        name = f"/dev/shm/billow-attack-{os.getpid()}"
        with open(name, "w", encoding="ascii") as f:
            f.write("of the node")
        self.addCleanup(os.remove, name)
        done = self.sh(f"ls /dev/shm | wc -l; echo mine > {name}; cat {name}")
        self.assertEqual(done.text, "0\nmine\n", done)
        with open(name, encoding="ascii") as f:
            self.assertEqual(f.read(), "of the node")

    def test_root_inside_is_an_unprivileged_user_outside(self):
        long = str(10**6 + os.getpid())
        job = self.rig.submit("--image", self.image, "--", "sh", "-c", f"echo up; sleep {long}; :")
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "up" in self.rig.cli("logs", job).text, "the job", 60)

        def users():
            found = set()
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{name}/cmdline", "rb") as f:
                        if f.read() == f"sleep\0{long}\0".encode():
                            found.add(os.stat(f"/proc/{name}").st_uid)
                except OSError:
                    pass
            return found

        poll(users, "its process")
        self.assertGreaterEqual(min(users()), 65536)

    def test_what_it_writes_belongs_to_its_user(self):
        done = self.sh("echo out > written; mkdir -p made; cat /proc/self/uid_map; id -u")
        self.assertEqual(done.code, 0, done)
        inside, outside, count = done.text.split()[:3]
        self.assertEqual((inside, count), ("0", "1"))
        self.assertGreaterEqual(int(outside), 65536)
        for name in ("written", "made"):
            self.assertEqual(os.stat(self.rig.file(name)).st_uid, 0, name)

    def python_in(self, script, directory):
        """What the node's Python prints in the container, in a directory of the node."""
        machine = os.uname().machine
        name = f"usr-{os.getpid()}"
        self.rig.cli("volume", "add", name, "--path", "/usr", "--read-only")
        libraries = f"/host/lib/{machine}-linux-gnu"
        loader = f"{libraries}/ld-linux-{machine.replace('_', '-')}.so.*"
        run = (
            f"PYTHONHOME=/host $(ls {loader} | head -1) --library-path"
            f" {libraries} /host/bin/python3"
        )
        with open(os.path.join(directory, "try.py"), "w", encoding="ascii") as f:
            f.write(script)
        command = ("run", "--image", self.image, "--volume", f"{name}:/host:ro", "--", "sh", "-c")
        done = self.rig.cli(*command, f"{run} try.py", cwd=directory, timeout=120)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.text)

    def test_it_leaves_no_privileged_file_on_the_node(self):
        directory = self.rig.file("privileged")
        os.makedirs(directory)
        with open(f"{directory}/given", "wb") as f:
            f.write(b"#!/bin/sh")
        tries = self.python_in(LEAVE, directory)
        self.assertEqual(tries.pop("plain"), "done", "ordinary files can be written")
        self.assertNotIn("done", tries.values(), tries)
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            self.assertEqual(info.st_mode & 0o6000, 0, f"{name}: {info.st_mode:o}")
            self.assertTrue(stat.S_ISREG(info.st_mode), f"{name}: {info.st_mode:o}")
            self.assertNotIn("security.capability", os.listxattr(path), name)

    def test_volumes_have_no_privileged_programs_inside(self):
        shown = self.sh("cat /proc/self/mounts").text.splitlines()
        options = next(
            line.split()[3].split(",") for line in shown if line.split()[1] == self.rig.files
        )
        self.assertIn("nosuid", options)
        self.assertIn("nodev", options)

    def test_volumes_keep_the_options_of_the_node(self):
        """A volume without programs can be used, and stays without."""
        directory = self.rig.file("locked")
        os.makedirs(directory)
        mount = ["mount", "-t", "tmpfs", "-o", "noexec,noatime", "none", directory]
        if subprocess.run(mount, check=False).returncode != 0:
            self.skipTest("nothing can be mounted here")
        self.addCleanup(subprocess.run, ["umount", directory], check=True)
        self.rig.ok("volume", "add", "locked", "--path", directory)
        for how in ("locked:/v", "locked:/v:ro"):
            done = self.run_in("--volume", how, "--", "cat", "/proc/self/mounts")
            self.assertEqual(done.code, 0, done)
            options = next(
                line.split()[3] for line in done.text.splitlines() if line.split()[1] == "/v"
            )
            for option in ("noexec", "nosuid", "nodev", "noatime"):
                self.assertIn(option, options.split(","))

    def test_nor_does_what_enters_it_later(self):
        """A hook, like a session of ssh, runs in the container of the job."""
        left = self.rig.file("hooked")
        chmod = "/bin/busybox chmod"
        hook = f"cat /bin/sh > {left}; {chmod} 755 {left}; {chmod} 4755 {left}; touch {left}.done"
        job = self.rig.submit(
            *("--image", self.image, "--spot", "--suspend-hook", hook, "--", "sh"),
            *("-c", "echo up; while :; do sleep 1; done"),
        )
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "up" in self.rig.cli("logs", job).text, "the job", 60)
        self.rig.cli("suspend", job)
        poll(lambda: os.path.exists(left + ".done"), "the hook", 60)
        self.assertEqual(os.stat(left).st_mode & 0o7777, 0o755)

    def test_billows_own_files_cannot_be_changed(self):
        done = self.sh("echo x > /usr/lib/billow/billow-as-user; echo code $?")
        self.assertIn("Read-only", done.text + done.errors)
        self.assertNotIn("code 0", done.text)


@NEEDS_ROOT
class Limits(RigTest):
    """A job that asks for no memory and no processes cannot have all there is."""

    options = {"sim": "4xH100"}
    LOOK = (
        "g=/sys/fs/cgroup; for d in $(sed -n 's/^[0-9]*:memory:/memory/p;s/^[0-9]*:pids:/pids/p;"
        "s/^0::/unified/p;s/^0:://p' /proc/self/cgroup); do cat $g/$d/memory.limit_in_bytes"
        " $g/$d/memory.max $g/$d/pids.max; done 2>/dev/null; true"
    )

    def limits(self, *options):
        text = self.rig.ok("run", *options, "--", "sh", "-c", self.LOOK).text
        return [int(word) for word in text.split() if word.isdigit()]

    def test_memory_and_processes_are_limited_by_default(self):
        doctor = self.rig.ok("doctor").text
        if "memory limits: not" in doctor or "process limits: not" in doctor:
            self.skipTest("this machine has no control groups for memory and processes")
        with open("/proc/meminfo", encoding="ascii") as f:
            all_of_it = int(f.readline().split()[1]) << 10
        one, half = self.limits("--gpus", "1"), self.limits("--gpus", "2")
        self.assertTrue([n for n in one if 1 << 29 < n <= all_of_it * 0.27], one)
        self.assertTrue([n for n in half if all_of_it * 0.4 < n <= all_of_it * 0.52], half)
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as f:
            self.assertIn(min(4096, int(f.read()) // 8), one)


@NEEDS_ROOT
class Devices(unittest.TestCase):
    """A job opens the GPU of another job, by a device file that it finds or makes elsewhere."""

    # A /dev with the files of four GPUs, in a mount namespace of the test's own.
    DEV = (
        "d=$(mktemp -d) && mount -t tmpfs none $d && cp -a /dev/null /dev/zero /dev/full"
        " /dev/random /dev/urandom /dev/tty /dev/ptmx $d && mkdir $d/pts $d/shm && mount --rbind"
        " /dev/pts $d/pts && mount --rbind /dev/shm $d/shm && ln -s /proc/self/fd $d/fd && for i in"
        " 0 1 2 3; do mknod -m 666 $d/nvidia$i c 195 $i; done && mount --move $d /dev && rmdir $d"
    )

    def test_a_gpu_that_is_not_the_jobs_cannot_be_opened_by_any_path(self):
        library = os.path.join(
            os.path.dirname(os.path.dirname(BILLOW)), "lib/libbillow-nvml-sim.so"
        )
        if not os.path.exists(library):
            self.skipTest("the simulated NVML is not built")
        keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", self.DEV + " && echo ready && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(lambda: (keeper.stdin.close(), keeper.wait(), keeper.stdout.close()))
        if keeper.stdout.readline() != b"ready\n":
            self.skipTest("no /dev of its own can be made here")
        rig = Rig(sim="4xH100", args=("--no-agent",))
        self.addCleanup(rig.close)
        if "device control: not available" in rig.ok("doctor").text:
            self.skipTest("this kernel attaches no BPF programs to control groups")
        # To this agent the cards are real: only the library behind them is simulated.
        agent = subprocess.Popen(
            [
                *("nsenter", "-t", str(keeper.pid), "-m", BILLOW, "agent"),
                *("--head", f"unix:{rig.data}/head.sock", "--token-file", f"{rig.data}/node-token"),
                *("--data", f"{rig.root}/agent"),
            ],
            env={**rig.environment, "BILLOW_NVML": library},
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(lambda: (agent.terminate(), agent.wait()))
        poll(lambda: rig.json("nodes")["nodes"], "the node")
        elsewhere = os.path.join(rig.root, "nodes")
        os.makedirs(elsewhere)
        for i in range(4):
            os.mknod(f"{elsewhere}/gpu{i}", 0o666 | 0o020000, os.makedev(195, i))
            os.chmod(f"{elsewhere}/gpu{i}", 0o666)
        look = (
            "import errno\nfor i in range(4):\n  try: open('%s/gpu%d' % (r'"
            + elsewhere
            + "', i))\n  except OSError as e: print(errno.errorcode[e.errno])\n  else:"
            " print('opened')"
        )
        got = rig.ok("run", "--gpus", "1", "--", "python3", "-c", look, timeout=60).text.split()
        # A device without a driver answers ENXIO; one that is denied EPERM.
        self.assertEqual(sorted(got), ["ENXIO", "EPERM", "EPERM", "EPERM"], got)
        got = rig.ok("run", "--", "python3", "-c", look, timeout=60).text.split()
        self.assertEqual(got, ["EPERM"] * 4)


@NEEDS_ROOT
class Memory(RigTest):
    """Whoever reads the agent's memory finds no secret of a job that was started."""

    options = {"sim": "1xH100"}

    def found(self, *texts):
        """Where in the agent's memory one of these texts is."""
        pid, out = self.rig.agent_pid(), []
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                for line in maps:
                    words = line.split()
                    if "rw" not in words[1] or words[-1].startswith("[v"):
                        continue
                    begin, end = (int(part, 16) for part in words[0].split("-"))
                    try:
                        memory.seek(begin)
                        data = memory.read(end - begin)
                    except OSError:
                        continue
                    for text in texts:
                        at = data.find(text)
                        if at >= 0:
                            out.append((words[-1], data[max(0, at - 40) : at + 60]))
        return out

    def test_secrets_are_gone_once_the_job_has_them(self):
        value = "hf_" + os.urandom(24).hex()
        self.rig.ok("secret", "set", "TOKEN", stdin=value.encode())
        for option in ("TOKEN", "TOKEN:file"):
            job = self.rig.submit("--secret", option, "--", "sleep", "600")
            self.rig.wait_for(job, "running")
            texts = (value.encode(), base64.b64encode(value.encode())[:-4])
            poll(
                lambda texts=texts: not self.found(*texts),
                f"{option} gone: {self.found(*texts)}",
                5,
            )
            self.rig.ok("stop", "--force", "--wait", job)
            self.assertEqual(self.found(*texts), [], option)
