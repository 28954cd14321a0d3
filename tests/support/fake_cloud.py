"""Providers of rented machines, each in the shape of its own documentation, on loopback. A machine is a
process: the start-up script that the order brought is run below a directory of its own.

A test sets faults: `cloud.fault("create", "lost")` lets the next creation happen and loses its answer.
Everything that was asked is in `cloud.requests`.
"""
import json
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from cloud_shapes import Crusoe, DigitalOcean, Hyperstack, Lambda, Vultr
from offer_shapes import RunPod, Shadeform, Vast, Verda
from rig import BIN, MARK, poll


class Cloud:
    """What all providers have in common. A shape says where things are."""

    def __init__(self, shape, root, mark):
        self.shape, self.root, self.mark = shape(self), root, mark
        self.lock = threading.RLock()
        self.machines, self.objects = {}, {}
        self.requests, self.faults = [], []
        self.created, self.deleted = [], []
        self.hidden_looks = 0  # a new machine is missing from so many lists
        self.first_state = None  # instead of the running state
        self.boots = True
        self.closed = False
        self.next_id = 100
        os.makedirs(root, exist_ok=True)
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                cloud.answer(self, self.rfile.read(length))

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}" + self.shape.base
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        with self.lock:  # connections outlive the server: an order on one of them starts nothing
            self.closed = True
            machines = list(self.machines.values())
        for machine in machines:
            self.power_off(machine)

    # ---- faults
    def fault(self, verb, what, times=1):
        with self.lock:
            self.faults += [(verb, what)] * times

    def take(self, verb):
        for i, (wanted, what) in enumerate(self.faults):
            if wanted == verb:
                del self.faults[i]
                return what
        return None

    # ---- requests
    def answer(self, handler, body):
        parts = urlsplit(handler.path)
        request = {
            "method": handler.command,
            "path": unquote(parts.path),
            "query": {k: v[0] for k, v in parse_qs(parts.query).items()},
            "url": handler.path,
            "headers": dict(handler.headers),
            "body": json.loads(body) if body else None,
        }
        with self.lock:
            self.requests.append(request)
            status, answer, lost = self.decide(request)
        if lost:
            handler.close_connection = True
            handler.connection.close()
            return
        text = answer if isinstance(answer, str) else json.dumps(answer)
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text.encode())))
        if status == 429:
            handler.send_header("Retry-After", "1")
        handler.end_headers()
        handler.wfile.write(text.encode())

    def decide(self, request):
        if self.closed:
            return 0, "", True
        path = request["path"]
        if not path.startswith(self.shape.base):
            return 404, {"message": "no such path"}, False
        request["path"] = path[len(self.shape.base) :]
        if not self.shape.allowed(request):
            return 401, self.shape.error(401, "unauthorized", "bad key"), False
        verb = self.shape.verb(request)
        what = self.take(verb)
        if what == "429":
            return 429, self.shape.error(429, "rate", "slow down"), False
        if what == "500":
            return 500, "<html>Internal Server Error</html>", False
        if what == "lost-before":
            return 0, "", True
        if what == "capacity":
            return *self.shape.capacity(), False
        if isinstance(what, tuple):
            return *what, False
        status, answer = self.shape.route(verb, request)
        if what == "lost":
            return 0, "", True
        return status, answer, False

    # ---- machines
    def create(self, name, script, **facts):
        self.next_id += 1
        machine = {
            "id": str(self.next_id),
            "name": name,
            "state": self.first_state or self.shape.here,
            "hidden": self.hidden_looks,
            "script": script,
            **facts,
        }
        machine["root"] = os.path.join(self.root, machine["id"])
        self.machines[machine["id"]] = machine
        self.created.append(name)
        if self.boots and machine["state"] == self.shape.here:
            self.boot(machine)
        return machine

    def boot(self, machine):
        os.makedirs(machine["root"])
        path = os.path.join(machine["root"], "user-data")
        with open(path, "w", encoding="utf-8") as f:
            f.write(machine["script"])
        env = {
            "PATH": os.path.abspath(BIN) + ":/usr/bin:/bin",
            "HOME": machine["root"],
            "BILLOW_BOOT_ROOT": machine["root"],
            "BILLOW_BOOT_PLAIN": "1",
            "BILLOW_BOOT_END": "true",
            MARK: self.mark,
        }
        machine["process"] = subprocess.Popen(
            ["sh", path], env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def power_off(self, machine):
        """Ends the machine's shells first: they would start the agent again."""
        if "process" not in machine:
            return
        wanted = f"BILLOW_BOOT_ROOT={machine['root']}".encode()

        def running():
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        if wanted not in f.read().split(b"\0"):
                            continue
                    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                        found.append((int(pid), f.read().strip()))
                except OSError:
                    continue
            return found

        def end():
            for pid, program in running():
                kind = signal.SIGKILL if program == "sh" else signal.SIGTERM
                try:
                    os.kill(pid, kind)
                except ProcessLookupError:
                    pass
            return not running()

        poll(end, f"machine {machine['name']} to end", 30)
        machine["process"].wait()

    def visible(self):
        shown = []
        for machine in self.machines.values():
            if machine["hidden"] > 0:
                machine["hidden"] -= 1
            else:
                shown.append(machine)
        return shown

    def delete(self, machine_id):
        machine = self.machines.pop(str(machine_id), None)
        if not machine:
            return None
        self.deleted.append(machine["name"])
        self.power_off(machine)
        return machine


SHAPES = [Crusoe, DigitalOcean, Hyperstack, Lambda, RunPod, Shadeform, Vast, Verda, Vultr]
