"""A whole Billow for a test: the real binaries on a data directory of their own, on loopback, with simulated GPUs.

A rig marks every process it causes (head, agent, supervisors, jobs) with a variable that names its data directory, so that its end
can prove that nothing was left behind. Nothing here sleeps to wait: `poll` looks at a condition until a deadline.
"""
import base64
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.environ.get("BILLOW_BIN") or os.path.join(SOURCE, "build/bin")
BILLOW = os.path.join(os.path.abspath(BIN), "billow")
# What a job behind the wall sees of a /tmp in which the programs lie: the way to them.
PROGRAMS_IN_TMP = BILLOW.split("/")[2:3] if BILLOW.startswith("/tmp/") else []
MARK = "BILLOW_TEST_RIG"


def poll(condition, what, seconds=30):
    """The first true value of `condition`; a test failure that says what was awaited when the time
    is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def alive(pid):
    """Whether that process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Done:
    """How a command ended."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def errors(self):
        return self.err.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return (
            f"{self.args} -> {self.code}\nstdout: {self.out[-2000:]!r}\nstderr:"
            f" {self.err[-2000:]!r}"
        )


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:2000]!r}"


# Tests run jobs as accounts of the system, and these look at files of the test below /tmp.
USUAL_POLICY = "allow 0-4294967294\ntmp shared"


class Rig:
    def __init__(self, sim="8xH100", data=None, up=True, args=(), **environment):
        self.sim = sim
        self.root = tempfile.mkdtemp(prefix="billow-e2e-")
        self.data = data or os.path.join(self.root, "data")
        self.files = os.path.join(self.root, "files")
        os.makedirs(self.files)
        os.chmod(self.root, 0o755)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("BILLOW_")}
        self.environment.update(
            {
                MARK: self.data,
                "BILLOW_DATA": self.data,
                "BILLOW_SIM": sim,
                "BILLOW_NODE_POLICY": self.node_policy(USUAL_POLICY),
                "BILLOW_SYSTEM_SOCKET": os.path.join(self.root, "no-head-of-the-machine"),
                "XDG_CONFIG_HOME": os.path.join(self.root, "config"),
                "XDG_STATE_HOME": os.path.join(self.root, "state"),
            },
            **environment,
        )
        self.args = list(args)
        self.connections = {}
        self.started = []
        self.deployed = set()  # endpoints
        if up:
            self.up()

    def node_policy(self, text):
        """A policy for the nodes of this rig, instead of the usual one."""
        path = os.path.join(self.root, "node.policy")
        with open(path, "w", encoding="ascii") as f:
            f.write(text + "\n")
        os.chmod(path, 0o644)
        return path

    # ---- the head
    def up(self, *more, listen="127.0.0.1:0"):
        done = self.cli(
            "up",
            "--background",
            "--listen",
            listen,
            "--sim",
            self.sim,
            *self.args,
            *more,
            timeout=60,
        )
        if done.code != 0:
            raise AssertionError(f"up failed: {done!r}\n{self.head_log()[-3000:]}")
        return done

    def head_log(self):
        return self.read("head.log")

    def read(self, name):
        try:
            with open(os.path.join(self.data, name), encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def head_pid(self):
        try:
            return json.loads(self.read("head.json") or "{}").get("pid", 0)
        except json.JSONDecodeError:
            return 0

    def agent_pid(self):
        text = self.read("agent/lock").strip()
        return int(text) if text.isdigit() else 0

    def address(self):
        host, port = (
            json.loads(self.read("head.json"))["addresses"][0]
            .removeprefix("http://")
            .rsplit(":", 1)
        )
        return host, int(port)

    def token(self):
        return self.read("token").strip()

    def token_for(self, user, **fields):
        """A token that an admin makes for somebody else."""
        return self.api("POST", f"/v1/users/{user}/tokens", {"name": "t", **fields}).json["token"]

    def node_token(self, node):
        """The secret of a new token that speaks for this node."""
        body = {"name": node[:60], "scope": "node", "node": node}
        return self.api("POST", "/v1/tokens", body).json["token"]

    def node_token_file(self, node):
        path = os.path.join(self.root, f"token-of-{node}")
        with open(path, "w", encoding="ascii") as f:
            f.write(self.node_token(node))
        return path

    def kill(self, pid):
        """kill -9 of a process of this rig, and its end."""
        if pid and pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            poll(lambda: not alive(pid), f"end of {pid}")

    # ---- what belongs to this rig
    def processes(self):
        """pid -> command line of everything alive that this rig caused."""
        mark = f"{MARK}={self.data}".encode()
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as f:
                    mine = mark in f.read().split(b"\0")
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    line = f.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if (mine or self.data in line) and alive(int(name)):
                found[int(name)] = line
        return found

    def close(self):
        """Everything down, and proof that nothing is left."""
        left = {}
        try:
            for process in self.started:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            for connection in self.connections.values():
                connection.close()
            if os.path.isdir(self.data):
                if self.processes() and not alive(self.head_pid()):
                    self.up()  # without a head nobody can stop the jobs of one that was killed
                done = self.cli("down", "--stop-jobs", timeout=90)
                try:
                    poll(lambda: not self.processes(), "no process left behind", 15)
                except AssertionError:
                    left = self.processes()
                if done.code != 0 or left:
                    raise AssertionError(
                        f"down: {done!r}\nleft behind:"
                        f" {left}\n{self.head_log()[-2000:]}\n{self.read('agent.log')[-2000:]}"
                    )
        finally:
            for pid in left or self.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if os.environ.get("BILLOW_KEEP"):
                print("kept:", self.root)
            else:
                self.remove_places()
                shutil.rmtree(self.root, ignore_errors=True)

    def remove_places(self):
        """The directories that agents of this rig made in shared places, by their records."""
        for folder, _, names in os.walk(self.root):  # which does not follow links out of it
            for name in names:
                if not name.startswith("place-"):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    path = f.read().strip()
                if os.path.basename(path).startswith("billow-"):
                    shutil.rmtree(path, ignore_errors=True)

    # ---- commands
    def command(self, *args):
        # Tests call their endpoints from this machine without a key, unless they say who may call.
        if len(args) > 1 and args[0] == "delete":
            self.deployed.discard(args[1])
        if len(args) > 1 and args[0] == "deploy" and args[1] not in self.deployed:
            self.deployed.add(args[1])
            if "--access" not in args:
                args = (*args[:2], "--access", "local", *args[2:])
        return [BILLOW, *map(str, args)]

    def cli(self, *args, stdin=None, timeout=60, cwd=None, env=None, user=None):
        run = subprocess.run(
            self.command(*args),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            cwd=cwd or self.files,
            env={**self.environment, **(env or {})},
            user=user,
            check=False,
        )
        return Done(args, run.returncode, run.stdout, run.stderr)

    def ok(self, *args, **options):
        done = self.cli(*args, **options)
        if done.code != 0:
            raise AssertionError(f"{done!r}")
        return done

    def json(self, *args, **options):
        return (
            self.ok(*args, "--json", **options).json
            if "--" not in args
            else self.ok(
                *args[: args.index("--")], "--json", *args[args.index("--") :], **options
            ).json
        )

    def start(self, *args, **options):
        """A command that runs beside the test; ended with the rig at the latest."""
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": self.files,
            **options,
        }
        process = subprocess.Popen(
            self.command(*args), env={**self.environment, **options.pop("env", {})}, **options
        )
        self.started.append(process)
        return process

    def submit(self, *args):
        """The number of a new job: submit("--gpus", 1, "--", "true")."""
        return self.json("submit", *args)["id"]

    def job(self, job):
        return self.json("describe", job)

    def wait_for(self, job, state, seconds=30):
        return poll(
            lambda: (lambda d: d if d["state"] == state else None)(
                self.api("GET", f"/v1/jobs/{job}").json
            ),
            f"job {job} {state}",
            seconds,
        )

    def script(self, text, name="script.sh"):
        path = os.path.join(self.files, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def file(self, name):
        return os.path.join(self.files, name)

    # ---- the API
    def api(self, method, path, body=None, token=None, headers=None, tcp=False, timeout=60):
        """One call; over the unix socket unless told otherwise. `body`: an object for JSON, or
        bytes as they are."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {"Authorization": f"Bearer {token or self.token()}", **(headers or {})}
        if token == "":
            del all_headers["Authorization"]
        if data is not None:
            all_headers.setdefault("Content-Type", "application/json")
        connection = (
            http.client.HTTPConnection(*self.address(), timeout=timeout)
            if tcp
            else UnixConnection(self.data + "/head.sock", timeout)
        )
        try:
            connection.request(method, path, data, all_headers)
            response = connection.getresponse()
            return Answer(
                response.status,
                dict((k.lower(), v) for k, v in response.getheaders()),
                response.read(),
            )
        finally:
            connection.close()

    def spec(self, *argv, **fields):
        return {
            "spec": {"argv": [str(a) for a in argv], "cwd": self.files, **fields},
            "env": {MARK: self.data},
        }


def sse_events(body):
    """(event, id, data) of each event of a finished event stream."""
    events = []
    for block in body.decode().split("\n\n"):
        fields = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
        if fields:
            events.append((fields.get("event", ""), fields.get("id", ""), fields.get("data", "")))
    return events


def stream_bytes(body, stream):
    return b"".join(
        base64.b64decode(data) for event, _, data in sse_events(body) if event == stream
    )


class WebSocket:
    """As much of RFC 6455 as a test needs to be rude with."""

    def __init__(self, rig, target, token, authorization=None):
        authorization = authorization or f"Bearer {token}"
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(rig.data + "/head.sock")
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(
            (
                f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade:"
                " websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
                f" {key}\r\nAuthorization: {authorization}\r\n\r\n"
            ).encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            if not self.fill():
                break
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        self.status = int(head.split(b" ")[1]) if head else 0

    def fill(self):
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def send(self, data, opcode=2):
        mask = os.urandom(4)
        length = (
            bytes([0x80 | len(data)])
            if len(data) < 126
            else (
                bytes([0x80 | 126]) + struct.pack(">H", len(data))
                if len(data) < 65536
                else bytes([0x80 | 127]) + struct.pack(">Q", len(data))
            )
        )
        self.sock.sendall(
            bytes([0x80 | opcode])
            + length
            + mask
            + bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        )

    def receive(self):
        """(opcode, data) of the next frame, or None at the end."""

        def need(n):
            while len(self.buffer) < n:
                if not self.fill():
                    return False
            return True

        try:
            if not need(2):
                return None
            opcode, length, at = self.buffer[0] & 15, self.buffer[1] & 127, 2
            if length == 126:
                if not need(4):
                    return None
                length, at = struct.unpack(">H", self.buffer[2:4])[0], 4
            elif length == 127:
                if not need(10):
                    return None
                length, at = struct.unpack(">Q", self.buffer[2:10])[0], 10
            if not need(at + length):
                return None
        except OSError:
            return None
        data, self.buffer = self.buffer[at : at + length], self.buffer[at + length :]
        return opcode, data

    def close(self):
        self.sock.close()


def agent_frame(message, blob=b""):
    text = json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text + blob


class RigTest(unittest.TestCase):
    """Cases of one class share a rig; each leaves it as it found it."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(**cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()
