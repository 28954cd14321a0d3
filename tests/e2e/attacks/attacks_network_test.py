"""Attacks on the networks of a node: each is carried out as a job would, and must fail."""
import json
import os
import subprocess
import tempfile
import textwrap
import unittest

from rig import BILLOW, Rig, poll

PYTHON = "/usr/bin/python3"  # that others can execute too
NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, to make networks")


class Space:
    """A network of its own with a cloud's metadata service, kept by a process in it."""

    ADDRESSES = ("169.254.169.254/32", "168.63.129.16/32", "10.20.30.40/32")
    ADDRESSES6 = (
        *("fd00:ec2::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128"),
        *("fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128"),
        *("fe80::a9fe:a9fe/64", "fd77::1/128"),
    )
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
    "oracle6": lambda: tcp(v6, "fd00:c1::a9fe:a9fe", 80),
    "scaleway6": lambda: tcp(v6, "fd00:42::42", 80),
    "akamai6": lambda: tcp(v6, "fd00:a9fe:a9fe::1", 80),
    "alibaba6": lambda: tcp(v6, "fd00:100::100:200", 80),
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
