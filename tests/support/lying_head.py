"""A head that lies: it speaks the agent protocol to a real agent and orders what it likes."""
import base64
import hashlib
import json
import os
import socket
import struct
import threading

from rig import agent_frame, poll

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

# What frames about copies and about tunnels begin with (core/wire/copy.h, tunnel.h).
COPY, TUNNEL = b"\xfd\xff\xff\xff", b"\xfe\xff\xff\xff"


class Connection:
    """One request of the agent; a WebSocket if it asks for one."""

    def __init__(self, sock):
        self.sock, self.buffer = sock, b""
        self.lock = threading.Lock()

    def need(self, count):
        while len(self.buffer) < count:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError
            self.buffer += data
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def request(self):
        """The path and the headers, with names in lower case."""
        while b"\r\n\r\n" not in self.buffer:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError
            self.buffer += data
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines if b": " in line)
        name = b"sec-websocket-key: "
        key = next((line[len(name) :] for line in lines if line.lower().startswith(name)), b"")
        self.need(int(headers.get(b"content-length", 0)))
        return first.split(b" ")[1].decode(), key

    def accept(self, key):
        proof = base64.b64encode(hashlib.sha1(key + GUID).digest())
        self.sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n"
        )

    def send(self, data, opcode=2):
        length = (
            bytes([len(data)])
            if len(data) < 126
            else bytes([126]) + struct.pack(">H", len(data))
            if len(data) < 65536
            else bytes([127]) + struct.pack(">Q", len(data))
        )
        with self.lock:
            self.sock.sendall(bytes([0x80 | opcode]) + length + data)

    def receive(self):
        """(opcode, data) of the next frame; agents mask theirs."""
        opcode, length = self.need(2)
        length &= 127
        if length == 126:
            (length,) = struct.unpack(">H", self.need(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.need(8))
        mask, data = self.need(4), self.need(length)
        return opcode & 15, bytes(b ^ mask[i % 4] for i, b in enumerate(data))


class LyingHead:
    """Listens on a Unix socket. `reports` has the newest status of each task, `answers` all other
    messages of the agent but heartbeats."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "lying.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.agent = None
        self.reports, self.answers = {}, []
        self.task = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(Connection(sock),), daemon=True).start()

    def talk(self, peer):
        try:
            path, key = peer.request()
            if not key or path != "/v1/agent":
                peer.sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                return
            peer.accept(key)
            while True:
                opcode, data = peer.receive()
                if opcode == 9:
                    peer.send(data, 10)
                elif opcode == 8:
                    return
                elif opcode == 2:
                    self.take(peer, data)
        except (OSError, ConnectionError):
            pass
        finally:
            if self.agent is peer:
                self.agent = None
            peer.sock.close()

    def take(self, peer, data):
        message = self.message_in(data)
        if message.get("type") == "hello":
            self.say(peer, {"type": "welcome", "epoch": 1, "node": 1})
            self.agent = peer
        elif message.get("type") == "report":
            status = message.get("status", {})
            self.reports[status.get("task")] = status
            self.say(peer, {"type": "ack", "number": message["number"]})
        elif message.get("type") != "heartbeat":
            self.answers.append(message)

    @staticmethod
    def message_in(data):
        if data.startswith(COPY):
            kind, _, text = data[4:].partition(b"\n")
            return {"type": kind.decode(), **json.loads(text)}
        data = data.removeprefix(TUNNEL)
        (length,) = struct.unpack("<I", data[:4])
        return json.loads(data[4 : 4 + length])

    @staticmethod
    def say(peer, message):
        peer.send(agent_frame(message))

    def order(self, **message):
        """Sends a message to the agent when it is connected."""
        peer = poll(lambda: self.agent, "the agent's connection")
        self.say(peer, message)

    def order_copy(self, **message):
        text = b"copy_files\n" + json.dumps(message).encode()
        poll(lambda: self.agent, "the agent's connection").send(COPY + text)

    def order_tunnel(self, **message):
        frame = agent_frame({"type": "tunnel_open", **message})
        poll(lambda: self.agent, "the agent's connection").send(TUNNEL + frame)

    def start(self, **fields):
        """Orders a new task and answers its number."""
        self.task += 1
        order = {"epoch": 1, "task": self.task, "job": self.task, "argv": ["true"], "cwd": "/"}
        self.order(type="start", **{**order, **fields})
        return self.task

    def state(self, task):
        return self.reports.get(task, {}).get("state")

    def end_of(self, task, seconds=60):
        """The status of a task that has ended."""
        poll(lambda: self.state(task) == "ended", f"end of task {task}", seconds)
        return self.reports[task]

    def close(self):
        self.listener.close()
        if self.agent:
            self.agent.sock.close()
