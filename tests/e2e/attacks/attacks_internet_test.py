"""Jobs with --network internet reach public addresses and names; those with --network project reach
each other. Neither reaches the node, private networks, the cloud's metadata service or other jobs.
Each attack is carried out by such a job."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import world as around
from attacks_image_test import ImagePython
from attacks_neighbour_test import NEEDS_ROOT
from rig import BILLOW, Rig, alive, poll
from world import World


STRICT = ("--isolation", "strict")
INTERNET = (*STRICT, "--network", "internet")

# Prints for each try what came of it: "GOT …", or the error.
TRIES = """
import ctypes, errno, fcntl, json, os, socket, struct, sys
abstract = sys.argv[1]
v4, v6, stream, datagram = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
def tcp(host, port=80, family=None):
    s = socket.socket(family or (v6 if ":" in host else v4))
    s.settimeout(5)
    s.connect((host, port))
    got = s.recv(64).decode()
    if not got:
        raise OSError(errno.ECONNRESET, "")
    return got
def tcp_as(source):
    s = socket.create_connection(("198.51.100.10", 80), 5, (source, 0))
    got = s.recv(64).decode()
    if not got:
        raise OSError(errno.ECONNRESET, "")
    return got
def udp(host, port=80, connected=False):
    s = socket.socket(v6 if ":" in host else v4, datagram)
    s.settimeout(2)
    if connected:
        s.connect((host, port))
        s.send(b"x")
        return s.recv(64).decode()
    s.sendto(b"x", (host, port))
    data, who = s.recvfrom(64)
    assert who[0] == host and who[1] == port, who
    return data.decode()
def named(name):
    s = socket.create_connection((name, 80), 5)
    got = s.recv(64).decode()
    if not got:
        raise OSError(errno.ECONNRESET, "")
    return got
def link_local():
    s = socket.socket(v6)
    s.settimeout(5)
    s.connect(("fe80::1", 80, 0, socket.if_nametoindex("lo")))
    return s.recv(64).decode() or None
def control(request, payload):
    fcntl.ioctl(socket.socket(v4, datagram), request, payload)
    return "done"
def add_route():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    body = struct.pack("BBBBBBBBI", v4, 32, 0, 0, 255, 4, 254, 2, 0)
    body += struct.pack("HH4s", 8, 1, socket.inet_aton("10.20.30.40")) + struct.pack("HHI", 8, 4, 1)
    s.send(struct.pack("IHHII", 16 + len(body), 24, 0x605, 1, 0) + body)
    error = struct.unpack("i", s.recv(4096)[16:20])[0]
    if error:
        raise OSError(-error, "")
    return "done"
def enter_the_node():
    if ctypes.CDLL(None, use_errno=True).setns(os.open("/proc/1/ns/net", 0), 0x40000000):
        raise OSError(ctypes.get_errno(), "")
    return tcp("127.0.0.1")
def unix():
    socket.socket(socket.AF_UNIX).connect("\\0" + abstract)
    return "connected"
tries = {
    "an address of the Internet": lambda: tcp("198.51.100.10"),
    "by IPv6": lambda: tcp("2001:db8:1::10"),
    "by a mapped address": lambda: tcp("::ffff:198.51.100.10"),
    "a name of the Internet": lambda: named("good.test"),
    "a packet to the Internet": lambda: udp("198.51.100.10"),
    "a packet by IPv6": lambda: udp("2001:db8:1::10"),
    "a connected packet": lambda: udp("198.51.100.10", connected=True),
    "the node's loopback": lambda: tcp("127.0.0.1"),
    "the node's loopback by IPv6": lambda: tcp("::1"),
    "the node's loopback by any address": lambda: tcp("0.0.0.0"),
    "the node's loopback, mapped": lambda: tcp("::ffff:127.0.0.1"),
    "another loopback address": lambda: tcp("127.9.9.9"),
    "the node's public address": lambda: tcp("203.0.113.7"),
    "the node's public address by a packet": lambda: udp("203.0.113.7"),
    "the node's public name": lambda: named("node.test"),
    "the node's private address": lambda: tcp("10.77.0.1"),
    "the node's IPv6 address": lambda: tcp("2001:db8:7::7"),
    "the metadata service": lambda: tcp("169.254.169.254"),
    "the metadata service, mapped": lambda: tcp("::ffff:169.254.169.254"),
    "the metadata service by NAT64": lambda: tcp("64:ff9b::a9fe:a9fe"),
    "the metadata service by 6to4": lambda: tcp("2002:a9fe:a9fe::1"),
    "the metadata service by a packet": lambda: udp("169.254.169.254"),
    "the metadata service by its name": lambda: named("meta.test"),
    "names at the metadata service": lambda: udp("169.254.169.254", 53),
    "an IPv6 link-local address": link_local,
    "a private network": lambda: tcp("10.20.30.40"),
    "a private network by a packet": lambda: udp("10.20.30.40"),
    "another private network": lambda: tcp("192.168.5.5"),
    "carrier-grade private addresses": lambda: tcp("100.64.0.9"),
    "a unique local address": lambda: tcp("fd00:ec2::254"),
    "a name that turns private": lambda: named("rebind.test"),
    "the name server on another port": lambda: tcp("10.99.0.53"),
    "a packet to the name server on another port": lambda: udp("10.99.0.53", 80),
    "multicast": lambda: udp("224.0.0.1"),
    "broadcast": lambda: udp("255.255.255.255"),
    "a neighbour": lambda: tcp("100.64.0.2", 7777),
    "a raw socket": lambda: socket.socket(v4, socket.SOCK_RAW, 1) and "made",
    "a raw IPv6 socket": lambda: socket.socket(v6, socket.SOCK_RAW, 58) and "made",
    "a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and "made",
    "the kernel's events": lambda: socket.socket(16, datagram, 15) and "made",
    "a connection as somebody else": lambda: tcp_as("198.51.100.77"),
    "an own route": add_route,
    "an own address": lambda: control(0x8916, struct.pack(
        "16sH2s4s8x", b"lo:1", v4, b"", socket.inet_aton("10.20.30.40"))),
    "the loopback down": lambda: control(0x8914, struct.pack("16sH14x", b"lo", 0)),
    "the node's network": enter_the_node,
    "an abstract socket": unix,
    "the port of the catcher": lambda: [tcp("127.0.0.1", int(l.split()[1].split(":")[1], 16))
        for l in open("/proc/net/tcp6").read().splitlines()[1:]] or tcp("127.0.0.1"),
}
out = {}
for what, attempt in tries.items():
    try:
        out[what] = "GOT " + repr(attempt())
    except socket.timeout:
        out[what] = "silence"
    except socket.gaierror as e:
        out[what] = "no name"
    except OSError as e:
        out[what] = errno.errorcode.get(e.errno, str(e.errno))
print(json.dumps(out))
"""
OPEN = {
    "an address of the Internet": "GOT '198.51.100.10'",
    "by IPv6": "GOT '2001:db8:1::10'",
    "by a mapped address": "GOT '198.51.100.10'",
    "a name of the Internet": "GOT '198.51.100.10'",
    "a packet to the Internet": "GOT 'packet'",
    "a packet by IPv6": "GOT 'packet'",
    "a connected packet": "GOT 'packet'",
}

NEIGHBOUR = """
import socket, time
s = socket.create_server(("0.0.0.0", 7777))
print("listens", flush=True)
while True:
    s.accept()[0].sendall(b"neighbour")
"""

# Asks an address of the Internet again and again.
ASKS = """
import socket, time
while True:
    try:
        print(socket.create_connection(("198.51.100.10", 80), 5).recv(64).decode(), flush=True)
    except OSError as e:
        print(e, flush=True)
    time.sleep(0.2)
"""

# Sends a MiB there and back by a connection whose ends close one after the other.
ECHO = """
import socket
server = socket.create_server(("198.51.100.10", 9000))
print("ready", flush=True)
peer, _ = server.accept()
data = b""
while piece := peer.recv(1 << 16):
    data += piece
peer.sendall(data[::-1])
peer.close()
"""
SENDS = """
import os, socket, threading
data = os.urandom(8 << 20)
s = socket.create_connection(("198.51.100.10", 9000), 30)
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = b""
while piece := s.recv(1 << 16):
    got += piece
print(got == data[::-1])
"""


# Two servers that answer each packet; and a job that sends one as itself, and one as the other.
BOUNCE = """
import selectors, socket
wait = selectors.DefaultSelector()
for port in (7001, 7002):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("198.51.100.10", port))
    wait.register(s, selectors.EVENT_READ, port)
print("ready", flush=True)
while True:
    for key, _ in wait.select():
        data, who = key.fileobj.recvfrom(2048)
        print(key.data, data.decode(), flush=True)
        key.fileobj.sendto(data, who)
"""
SPOOFS = """
import socket, time
for source in ("198.51.100.10", "0.0.0.0"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((source, 7002))
    s.sendto(source.encode(), ("198.51.100.10", 7001))
    time.sleep(0.5)
print("sent", flush=True)
"""

# Begins connections as fast as it can, and says how many were carried and for how long it tried.
BEGINS = """
import json, socket, time
begun, carried = time.monotonic(), 0
for _ in range(4000):
    try:
        with socket.create_connection(("198.51.100.10", 80), 5) as s:
            carried += s.recv(64) != b""
    except OSError:
        pass
print(json.dumps([carried, time.monotonic() - begun]), flush=True)
"""


class OnANode(unittest.TestCase):
    """A node in a world of its own, with two users who have the same account there."""

    network = "internet"

    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.rig = Rig(sim="1xH100", up=False)
        cls.addClassCleanup(cls.rig.close)
        cls.rig.command = lambda *args: cls.world.inside(BILLOW, *map(str, args))
        cls.rig.up()
        doctor = cls.rig.ok("doctor", "--json").text
        if "--network internet works" not in doctor:
            raise unittest.SkipTest("this kernel cannot make jobs' networks: " + doctor)
        for user in ("bo", "eve"):
            cls.rig.ok("user", "create", user, "--unix-name", "nobody")
            cls.rig.ok("project", "member", "default", user)
        cls.tokens = {user: cls.rig.token_for(user) for user in ("bo", "eve")}
        cls.rig.ok("project", "create", "other")
        cls.rig.ok("project", "member", "other", "eve")

    def cli(self, *words, user="bo", cwd=None):
        return self.rig.cli(*words, cwd=cwd, env={"BILLOW_TOKEN": self.tokens[user]}, timeout=120)

    def directory(self, **files):
        where = tempfile.mkdtemp(prefix="internet-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, where, True)
        os.chmod(where, 0o777)
        for name, text in files.items():
            with open(f"{where}/{name}.py", "w", encoding="utf-8") as f:
                f.write(text)
        return where

    def submit(self, script, *options, user="bo"):
        where = self.directory(script=script)
        words = ("submit", "--json", "--gpus", "0", *STRICT, "--network", self.network, *options)
        done = self.cli(*words, "--", around.PYTHON, "script.py", user=user, cwd=where)
        self.assertEqual(done.code, 0, done)
        job = done.json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        return job

    def logged(self, job, word, seconds=60):
        poll(lambda: word in self.rig.cli("logs", job).text, f"{word} in the log", seconds)

    def first_process(self, job):
        """The process id of a job's own program."""
        wanted = f"BILLOW_JOB_ID={job}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if words[:2] == [around.PYTHON.encode(), b"script.py"] and (
                        wanted in f.read().split(b"\0")
                    ):
                        return int(pid)
            except OSError:
                pass
        raise AssertionError(f"job {job} has no process")


@NEEDS_ROOT
class Internet(OnANode):
    def tries(self, *options):
        name = f"billow-test-{os.getpid()}"
        holder = subprocess.Popen(
            self.world.inside(
                around.PYTHON,
                "-c",
                "import socket, time; s = socket.socket(socket.AF_UNIX);"
                f" s.bind('\\0{name}'); s.listen(); print(flush=True); time.sleep(600)",
            ),
            stdout=subprocess.PIPE,
        )
        self.addCleanup(lambda: (holder.kill(), holder.wait(), holder.stdout.close()))
        holder.stdout.readline()
        where = self.directory(tries=TRIES)
        words = ("run", "--gpus", "0", *INTERNET, *options)
        done = self.cli(*words, "--", around.PYTHON, "tries.py", name, cwd=where)
        self.assertEqual(done.code, 0, done)
        got = json.loads(done.text.strip().splitlines()[-1])
        self.assertGreaterEqual(len(got), 44)
        return got

    def test_they_reach_the_internet_and_nothing_else(self):
        neighbour = self.submit(NEIGHBOUR, user="eve")
        self.logged(neighbour, "listens")
        got = self.tries()
        self.assertEqual({name: got.pop(name) for name in OPEN}, OPEN)
        self.assertEqual({n: r for n, r in got.items() if r.startswith("GOT")}, {})
        for name in ("a private network", "the metadata service", "another private network"):
            self.assertIn(got[name], ("EHOSTUNREACH", "EPERM"), name)
        for name in ("a raw socket", "an own route", "an own address", "the loopback down"):
            self.assertEqual(got[name], "EPERM", name)

    def test_allowed_blocks_are_reached_and_the_node_in_them_is_not(self):
        got = self.tries("--allow", "192.168.5.0/24", "--allow", "10.77.0.0/24")
        self.assertEqual(got.pop("another private network"), "GOT '192.168.5.5'")
        self.assertEqual({name: got.pop(name) for name in OPEN}, OPEN)
        self.assertEqual({n: r for n, r in got.items() if r.startswith("GOT")}, {})

    def test_what_cannot_be_allowed_is_refused(self):
        for block, word in (
            ("169.254.169.254", "not a private network"),
            ("127.0.0.1", "not a private network"),
            ("0.0.0.0/0", "not a private network"),
            ("8.8.8.8", "not a private network"),
            ("10.0.0.1/8", "bits beyond"),
            ("fe80::/10", "not a private network"),
            ("ten", "not an address"),
        ):
            done = self.cli("run", *INTERNET, "--allow", block, "--no-sync", "--", "true")
            self.assertIn(done.code, (1, 2), done)
            self.assertIn(word, done.errors)
        done = self.cli("run", "--isolation", "strict", "--allow", "10.0.0.1", "--", "true")
        self.assertIn("--allow needs --network internet", done.errors)

    def test_connections_carry_bytes_both_ways_and_close_one_by_one(self):
        echo = subprocess.Popen(
            World.enter(self.world.world, around.PYTHON, "-c", ECHO), stdout=subprocess.PIPE
        )
        self.addCleanup(lambda: (echo.kill(), echo.wait(), echo.stdout.close()))
        echo.stdout.readline()
        job = self.submit(SENDS)
        self.logged(job, "True")

    def test_packets_that_are_sent_as_somebody_else_go_nowhere(self):
        server = subprocess.Popen(
            World.enter(self.world.world, around.PYTHON, "-c", BOUNCE), stdout=subprocess.PIPE
        )
        self.addCleanup(server.stdout.close)
        server.stdout.readline()
        self.logged(self.submit(SPOOFS), "sent")
        server.kill()
        server.wait()
        self.assertEqual(server.stdout.read().decode(), "7001 0.0.0.0\n")

    def test_new_connections_are_limited(self):
        where = self.directory(begins=BEGINS)
        done = self.cli(
            *("run", "--gpus", "0", *INTERNET, "--", around.PYTHON, "begins.py"), cwd=where
        )
        carried, seconds = json.loads(done.text)
        self.assertGreaterEqual(carried, 900, done)
        self.assertLessEqual(carried, 1000 + 100 * (seconds + 1), done)

    def test_the_uplink_has_limits_of_its_own(self):
        before = set(self.world.processes(b"uplink"))
        job = self.submit(ASKS, "--cpus", "0.5", "--mem", "64M")
        self.logged(job, around.INTERNET)
        (uplink,) = set(self.world.processes(b"uplink")) - before
        groups = {pid: groups_of(pid) for pid in (uplink, self.first_process(job))}
        limited = {kind for kind, path in groups.popitem()[1].items() if "task-" in path}
        if not limited:
            self.skipTest("this machine lets nobody make control groups")
        own = {kind: path for kind, path in groups[uplink].items() if kind in limited}
        self.assertEqual([path for path in own.values() if "uplink-" not in path], [], own)
        self.rig.ok("stop", "--force", job)
        poll(lambda: not alive(uplink), "the uplink's end", 20)
        poll(lambda: not uplink_groups(next(iter(own.values()))), "the end of its groups", 20)

    def test_it_outlives_the_agent_and_ends_with_the_job(self):
        before = set(self.world.processes(b"uplink"))
        job = self.submit(ASKS)
        self.logged(job, around.INTERNET)
        mine = set(self.world.processes(b"uplink")) - before
        self.assertEqual(len(mine), 1)
        uplink = mine.pop()
        network = os.stat(f"/proc/{self.first_process(job)}/ns/net").st_ino
        agent = self.rig.agent_pid()
        os.kill(agent, signal.SIGKILL)
        poll(lambda: not alive(agent), "the agent's end")
        seen = len(self.rig.cli("logs", job).text.splitlines())
        self.assertTrue(alive(uplink))
        self.rig.up()
        poll(
            lambda: len(self.rig.cli("logs", job).text.splitlines()) > seen + 10
            and self.rig.cli("logs", job).text.splitlines()[-1] == around.INTERNET,
            "more answers",
            60,
        )
        self.rig.ok("stop", "--force", job)
        poll(lambda: not alive(uplink), "the uplink's end", 20)
        poll(lambda: network not in networks(), "the end of the job's network", 20)

    def test_a_killed_uplink_leaves_no_network_and_no_way_around(self):
        before = set(self.world.processes(b"uplink"))
        job = self.submit(ASKS)
        self.logged(job, around.INTERNET)
        for uplink in set(self.world.processes(b"uplink")) - before:
            os.kill(uplink, signal.SIGKILL)
        self.logged(job, "refused")
        self.assertEqual(self.rig.job(job)["state"], "running")

    def test_it_is_shown(self):
        job = self.submit(ASKS, "--allow", "10.1.0.0/16")
        seen = self.rig.json("describe", job)
        self.assertEqual((seen["network"], seen["allow"]), ("internet", ["10.1.0.0/16"]))

    def test_the_uplink_is_confined(self):
        before = set(self.world.processes(b"uplink"))
        self.logged(self.submit(ASKS), around.INTERNET)
        (uplink,) = set(self.world.processes(b"uplink")) - before
        with open(f"/proc/{uplink}/status", encoding="ascii") as f:
            status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        self.assertGreaterEqual(int(status["Uid"].split()[0]), 65536, "not an account")
        for field in ("CapEff", "CapPrm", "CapAmb"):
            self.assertEqual(int(status[field], 16), 0, field)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))


def groups_of(pid):
    """The control groups of a process, by their controllers."""
    with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
        return dict(line.strip().split(":", 2)[1:] for line in f)


def uplink_groups(path):
    """The directories of this group that are left."""
    return [top for top, _, _ in os.walk("/sys/fs/cgroup") if top.endswith(path)]


def networks():
    """The network namespaces that any process is in."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.stat(f"/proc/{pid}/ns/net").st_ino)
        except OSError:
            pass
    return found


# From a job in an image on this machine, whose own networks are not those of the test.
INSIDE = """
import json, socket
out = {"devices": [l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l]}
for host in ("10.20.30.40", "127.0.0.1", "169.254.169.254"):
    try:
        socket.create_connection((host, 80), 3)
        out[host] = "GOT"
    except OSError as e:
        out[host] = "refused"
print(json.dumps(out))
"""


class FromAnImage(ImagePython):
    def test_a_job_in_an_image_has_a_network_of_its_own(self):
        for network, devices in (("internet", ["lo"]), ("project", ["lo", "eth0"])):
            directory = tempfile.mkdtemp(dir=self.rig.root)
            os.chmod(directory, 0o777)
            got = self.python_in(INSIDE, directory, "--network", network)
            self.assertEqual(got.pop("devices"), devices)
            self.assertEqual(set(got.values()), {"refused"})


@NEEDS_ROOT
class WithoutRoot(unittest.TestCase):
    """An agent of an ordinary person cannot make such a network, and says so."""

    def test_the_job_is_refused(self):
        rig = Rig(up=False, HOME="/nonexistent")
        self.addCleanup(rig.close)
        for path in (rig.root, rig.files):
            os.chown(path, 65534, -1)
        started = rig.cli(
            "up", "--background", "--listen", "127.0.0.1:0", "--sim", rig.sim, user=65534
        )
        self.assertEqual(started.code, 0, started)
        done = rig.cli("run", *INTERNET, "--no-sync", "--", "true", user=65534)
        self.assertEqual(done.code, 126, done)
        self.assertIn("its agent does not run as root", done.errors)
        self.assertEqual(rig.cli("down", "--stop-jobs", user=65534).code, 0)


if __name__ == "__main__":
    unittest.main()
