"""Several machines out of one: network namespaces joined by a bridge that is in a namespace of its own, so that nothing of the real
machine's network is touched. Links can be cut, made lossy, and slowed down (by a proxy: the kernel at hand may have no netem)."""
import ctypes
import os
import shutil
import socket
import subprocess
import threading
import time


def usable():
    """Why not, or an empty string."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip") or not shutil.which("nsenter"):
        return "iproute2 or util-linux is missing"
    name = f"bwt{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"no network namespace can be made here: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return ""


def ip(*args):
    subprocess.run(["ip", *map(str, args)], check=True, capture_output=True)


class Net:
    count = 0

    def __init__(self, *hosts):
        Net.count += 1
        self.tag = f"bw{os.getpid()}x{Net.count}"
        self.switch = f"{self.tag}sw"
        self.hosts = {}
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, host in enumerate(hosts, 1):
            namespace, port = f"{self.tag}{host}", f"p{number}"
            ip("netns", "add", namespace)
            ip(
                "-n",
                self.switch,
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                namespace,
            )
            ip("-n", self.switch, "link", "set", port, "master", "br0")
            ip("-n", self.switch, "link", "set", port, "up")
            ip("-n", namespace, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", namespace, "link", "set", "eth0", "up")
            ip("-n", namespace, "link", "set", "lo", "up")
            self.hosts[host] = (namespace, port, f"10.77.0.{number}")

    def address(self, host):
        return self.hosts[host][2]

    def inside(self, host):
        """What to put before a command so that it runs on that machine."""
        return ["nsenter", f"--net=/run/netns/{self.hosts[host][0]}"]

    def cut(self, host):
        ip("-n", self.switch, "link", "set", self.hosts[host][1], "down")

    def mend(self, host):
        ip("-n", self.switch, "link", "set", self.hosts[host][1], "up")

    def lose(self, host, share):
        """Drops this share of what arrives at the host; 0 ends it. False where the kernel cannot."""
        run = (
            lambda *args: subprocess.run(
                [*self.inside(host), "iptables", *args], capture_output=True, check=False
            ).returncode
            == 0
        )
        run("-F", "INPUT")
        return share == 0 or run(
            "-A",
            "INPUT",
            "-m",
            "statistic",
            "--mode",
            "random",
            "--probability",
            str(share),
            "-j",
            "DROP",
        )

    def close(self):
        for namespace, _, _ in self.hosts.values():
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.switch], capture_output=True, check=False)


def socket_in(namespace, make):
    """What `make` returns in that namespace: a socket belongs to the namespace it is made in. Only a thread of its own visits it."""
    result = []

    def visit():
        with open(f"/run/netns/{namespace}", "rb") as f:
            enter_namespace(f.fileno())
        result.append(make())

    thread = threading.Thread(target=visit)
    thread.start()
    thread.join()
    return result[0]


def enter_namespace(descriptor):
    if hasattr(os, "setns"):
        os.setns(descriptor, 0x40000000)
    elif ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class SlowProxy:
    """Passes bytes on after a delay, in order: a long way between two machines."""

    def __init__(self, namespace, listen, to, delay):
        self.delay, self.to, self.namespace = delay, to, namespace
        self.server = socket_in(namespace, lambda: socket.create_server(listen))
        self.open = True
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while self.open:
            try:
                one, _ = self.server.accept()
                other = socket_in(self.namespace, lambda: socket.create_connection(self.to, 10))
            except (OSError, IndexError):
                continue
            for a, b in ((one, other), (other, one)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, source, sink):
        waiting, ready = [], threading.Condition()

        def deliver():
            while True:
                with ready:
                    while not waiting:
                        ready.wait()
                    due, data = waiting.pop(0)
                time.sleep(
                    max(0, due - time.monotonic())
                )  # the way takes this long; nothing is awaited by it
                try:
                    sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)
                except OSError:
                    return
                if not data:
                    return

        threading.Thread(target=deliver, daemon=True).start()
        while True:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            with ready:
                waiting.append((time.monotonic() + self.delay, data))
                ready.notify()
            if not data:
                return

    def close(self):
        self.open = False
        self.server.close()
