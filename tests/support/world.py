"""A node with a network around it: two network namespaces that are joined by a link. In `node` run
Billow and the node's own services; `world` is everything else: the Internet, private networks, a
cloud's metadata service, and a name server. Nothing of the real machine's network is touched."""
import os
import subprocess
import tempfile
import textwrap

PYTHON = "/usr/bin/python3"  # that others can execute too

INTERNET = "198.51.100.10"
INTERNET6 = "2001:db8:1::10"
METADATA = "169.254.169.254"
PRIVATE = "10.20.30.40"
ALLOWED = "192.168.5.5"
NAME_SERVER = "10.99.0.53"
NODE_PUBLIC, NODE_PRIVATE = "203.0.113.7", "10.77.0.1"
NODE6 = "2001:db8:7::7"

SERVER = """
import selectors, socket, struct, sys
NAMES = {"good.test": "198.51.100.10", "rebind.test": "10.20.30.40", "meta.test": "169.254.169.254",
         "node.test": "203.0.113.7"}
port, with_names = int(sys.argv[1]), sys.argv[2] == "names"
wait = selectors.DefaultSelector()
def listen(kind, port, what):
    s = socket.socket(socket.AF_INET6, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    s.bind(("::", port))
    if kind == socket.SOCK_STREAM:
        s.listen(64)
    wait.register(s, selectors.EVENT_READ, what)
listen(socket.SOCK_STREAM, port, "tcp")
listen(socket.SOCK_DGRAM, port, "udp")
if with_names:
    listen(socket.SOCK_DGRAM, 53, "names")
def answer(query):
    name, at = [], 12
    while query[at]:
        name.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1:at + 3])[0]
    address = NAMES.get(".".join(name))
    found = bool(address and kind == 1)
    out = query[:2] + b"\\x81\\x80" + struct.pack(">HHHH", 1, found, 0, 0) + query[12:at + 5]
    if found:
        out += b"\\xc0\\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address)
    return out
print("ready", flush=True)
while True:
    for key, _ in wait.select():
        if key.data == "tcp":
            peer, _ = key.fileobj.accept()
            peer.sendall(peer.getsockname()[0].removeprefix("::ffff:").encode())
            peer.close()
            continue
        data, extra, _, who = key.fileobj.recvmsg(2048, 256)
        source = [(a, b, c) for a, b, c in extra if a == socket.IPPROTO_IPV6]
        reply = answer(data) if key.data == "names" else b"packet"
        key.fileobj.sendmsg([reply], source, 0, who)
"""


class World:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="billow-world-")
        os.chmod(self.folder, 0o755)
        self.children = []
        with open(self.folder + "/resolv.conf", "w", encoding="ascii") as f:
            f.write(f"search test\nnameserver {NAME_SERVER}\noptions timeout:2 attempts:2\n")
        self.world = self.keep("unshare", "-n")
        self.node = self.keep("unshare", "-n", "-m", "--propagation", "private")
        self.join()
        self.serve(self.world, "80", "names")
        self.serve(self.node, "80", "nothing")

    def keep(self, *before):
        child = subprocess.Popen([*before, "sh", "-c", "echo; exec sleep 3600"], stdout=-1)
        self.children.append(child)
        child.stdout.readline()
        return child.pid

    @staticmethod
    def enter(pid, *command):
        return ["nsenter", "-t", str(pid), "-n", "-m", *command]

    def sh(self, pid, script):
        subprocess.run(
            self.enter(pid, "sh", "-ec", textwrap.dedent(script)), check=True, capture_output=True
        )

    def join(self):
        self.sh(
            self.world,
            f"""
            ip link set lo up
            ip link add out type veth peer name eth0 netns {self.node}
            ip link set out up
            ip addr add 203.0.113.1/24 dev out
            ip addr add 10.77.0.254/24 dev out
            ip -6 addr add 2001:db8:7::1/64 dev out nodad
            """
            + "".join(
                f"ip addr add {a}/32 dev lo\n"
                for a in (INTERNET, METADATA, PRIVATE, ALLOWED, NAME_SERVER)
            )
            + f"ip -6 addr add {INTERNET6}/128 dev lo nodad\n",
        )
        self.sh(
            self.node,
            f"""
            mount --bind {self.folder}/resolv.conf /etc/resolv.conf
            ip link set lo up
            ip link set eth0 up
            ip addr add {NODE_PUBLIC}/24 dev eth0
            ip addr add {NODE_PRIVATE}/24 dev eth0
            ip -6 addr add {NODE6}/64 dev eth0 nodad
            ip route add default via 203.0.113.1
            ip -6 route add default via 2001:db8:7::1
            """,
        )

    def serve(self, pid, *words):
        child = subprocess.Popen(
            self.enter(pid, PYTHON, "-c", SERVER, *words), stdout=subprocess.PIPE
        )
        self.children.append(child)
        if child.stdout.readline() != b"ready\n":
            raise AssertionError("the servers of the test did not start")

    def inside(self, *command):
        """A command that is to run on the node, in the directory where it is started."""
        script = (
            f'exec nsenter -t {self.node} -n -m sh -c \'cd "$0" && exec "$@"\' "$(pwd)" "$@"'
        )
        return ["sh", "-c", script, "sh", *command]

    def processes(self, word):
        """Programs with this word in their command line, in the node's network."""
        home = os.stat(f"/proc/{self.node}/ns/net").st_ino
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if word in f.read().split(b"\0") and (
                        os.stat(f"/proc/{pid}/ns/net").st_ino == home
                    ):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def close(self):
        for child in reversed(self.children):
            child.kill()
            child.wait()
            child.stdout.close()
        os.remove(self.folder + "/resolv.conf")
        os.rmdir(self.folder)
