"""Services of a real cluster without kube-proxy and CoreDNS: the addresses of services are the
node's own, a proxy forwards each to the pod behind it, and a small server answers for their names.

    python3 kube_service.py ADDRESS NAME=ADDRESS...     serves these names
"""
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import kube_real

CUT_PROXY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cut_proxy.py")


class ServiceAddresses:
    """Which (address, port) leads where. `close` ends the proxies."""

    def __init__(self, cluster):
        self.cluster, self.proxies = cluster, {}
        self.following = None

    def lead(self, address, port, target, target_port):
        """From now on connections to the service reach this target."""
        self.end(address, port)
        network = self.cluster.spaces.network()
        subprocess.run(
            [*network, "ip", "addr", "replace", f"{address}/32", "dev", "lo"], check=True
        )
        words = (sys.executable, CUT_PROXY, address, port, target, target_port)
        proxy = subprocess.Popen([*network, *map(str, words)], stdout=subprocess.PIPE)
        if not proxy.stdout.readline().startswith(b"ready"):
            raise AssertionError(f"no proxy for {address}:{port}")
        self.proxies[address, port] = proxy

    def lead_to_api_server(self):
        """Pods reach the API server at the address of the service `kubernetes`."""
        self.lead("10.96.0.1", 443, kube_real.BRIDGE, kube_real.PORT)

    def name(self, name, address):
        """Pods find the address by this name."""
        self.end(kube_real.DNS, 53)
        network = self.cluster.spaces.network()
        own = [*network, "ip", "addr", "replace", f"{kube_real.DNS}/32", "dev", "lo"]
        subprocess.run(own, check=True)
        words = (sys.executable, os.path.abspath(__file__), kube_real.DNS, f"{name}={address}")
        server = subprocess.Popen([*network, *words], stdout=subprocess.PIPE)
        if not server.stdout.readline().startswith(b"ready"):
            raise AssertionError("no name server")
        self.proxies[kube_real.DNS, 53] = server

    def follow(self, namespace, service, port):
        """From now on connections to the service reach a pod of it that is ready: as long as it is
        ready the same one, else the last."""
        place = f"/api/v1/namespaces/{namespace}"
        address = self.cluster.get_object(f"{place}/services/{service}")["spec"]["clusterIP"]
        self.name(f"{service}.{namespace}.svc.cluster.local", address)

        def look(going):
            now = None
            while going.is_set():
                found = self.cluster.get_object(f"{place}/endpoints/{service}") or {}
                ready = sorted(
                    one["ip"]
                    for subset in found.get("subsets") or []
                    for one in subset.get("addresses") or []
                )
                if ready and now not in ready:
                    now = ready[-1]
                    self.lead(address, port, now, port)
                time.sleep(0.2)

        self.stop_following()
        going = threading.Event()
        going.set()
        self.following = (going, threading.Thread(target=look, args=(going,)))
        self.following[1].start()

    def stop_following(self):
        if self.following:
            self.following[0].clear()
            self.following[1].join()
            self.following = None

    def end(self, address, port):
        if proxy := self.proxies.pop((address, port), None):
            proxy.kill()
            proxy.wait()
            proxy.stdout.close()

    def close(self):
        self.stop_following()
        for place in list(self.proxies):
            self.end(*place)


def answer(question, names):
    """A DNS answer: the address of a known name, nothing for its other types, else NXDOMAIN."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
    found = names.get(".".join(labels).lower())
    has_address = found is not None and kind == 1
    flags = 0x8180 if found is not None else 0x8183
    out = question[:2] + struct.pack("!HHHHH", flags, 1, int(has_address), 0, 0)
    out += question[12 : at + 5]
    if has_address:
        out += struct.pack("!HHHIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(found)
    return out


def serve_names(address, names):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    print("ready", flush=True)
    while True:
        question, client = server.recvfrom(4096)
        server.sendto(answer(question, names), client)


if __name__ == "__main__":
    serve_names(sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))
