"""The program of a replica of a function: `python -m billow._worker REVISION TREE`, in the
directory that `_deploy` filled. It listens on $PORT, loads the function, and serves calls.

One thread per connection reads requests; the calls run where their executor says; the thread that
has an outcome writes it. Requests without the secret of `function.json` are refused before their
body is read: a pickle is a program.
"""

from __future__ import annotations

import collections
import faulthandler
import hmac
import importlib.metadata
import json
import os
import platform
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from . import _lane, _output
from ._errors import Error
from ._http import Body, Buffer, BrokenAnswer, Stream, send_pieces
from ._wire import ALIVE, OUTPUT, Packed, frame, read_calls

ALIVE_EVERY_S = 10.0
WHOLE_WITHIN_S = 5.0  # an answer that takes longer begins before it is complete
FLUSH_BYTES = 64 << 10
FLUSH_S = 0.02
PRINTED_MAX = 4096  # pieces of text that wait to be sent; more are only in the log
LINGER_S = 0.5
LINGER_PIECES_MAX = 64
LOOK_S = 0.05  # how often a waiting connection checks whether its caller has gone

REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 409: "Conflict"}


class Peer:
    """One connection of the gateway."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.stream = Stream(sock)
        self.method = ""
        self.target = ""
        self.headers: Dict[str, str] = {}

    def next_request(self) -> Optional[Body]:
        """The next request; None when the connection has ended."""
        try:
            words = self.stream.line().split(b" ")
        except (BrokenAnswer, OSError):
            return None
        if len(words) != 3:
            return None
        self.method, self.target = words[0].decode("latin-1"), words[1].decode("latin-1")
        self.headers = {}
        while True:
            line = self.stream.line()
            if not line:
                break
            name, _, value = line.partition(b":")
            self.headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
        return Body(self.stream, self.headers, int(self.headers.get("content-length", "0")))

    def respond(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.sock.sendall(
            f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    def refuse(self, status: int, detail: str) -> None:
        problem = {"title": REASONS.get(status, ""), "status": status, "detail": detail}
        self.respond(status, json.dumps(problem).encode(), "application/problem+json")

    def close(self) -> None:
        """Reads what is left first: with unread data, the system would reset the connection and
        the other side lose the answer, such as a refusal."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.settimeout(LINGER_S)
            for _ in range(LINGER_PIECES_MAX):
                if not self.sock.recv(64 << 10):
                    break
        except OSError:
            pass
        self.sock.close()

    def has_gone(self) -> bool:
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True


class Answer:
    """The answer to one request of calls. Frames are joined while they are small and recent."""

    def __init__(
        self, peer: Peer, count: int, head: bytes, shares: bool, prints: bool = False
    ) -> None:
        self._peer = peer
        self._printed: Deque[Tuple[int, str]] = collections.deque()
        self.tell = self._print if prints else None
        self._lane: Optional[List[str]] = [] if shares else None
        self._head = head
        self._left = count
        self._lock = threading.Lock()
        self._pending: List[Buffer] = []
        self._size = 0
        self._begun = False
        self._flushed = time.monotonic()
        self.cancelled = False
        self.done = threading.Event()

    def _print(self, stream: int, text: str) -> None:
        """Of user code, which may be interrupted at any point: others send it."""
        if len(self._printed) < PRINTED_MAX:
            self._printed.append((stream, text))
        elif len(self._printed) == PRINTED_MAX:
            self._printed.append((_output.ERR, "billow: more output is in the log\n"))

    def _take_printed(self) -> None:
        while self._printed:
            stream, text = self._printed.popleft()
            while self._printed and self._printed[0][0] == stream and len(text) < FLUSH_BYTES:
                text += self._printed.popleft()[1]
            data = f"{stream}{text}".encode("utf-8", "replace")
            made = frame(OUTPUT, 0, 0.0, Packed(data))
            assert isinstance(made, bytes)
            self._pending.append(made)
            self._size += len(made)

    def put(self, kind: int, index: int, seconds: float, packed: Packed) -> None:
        made = frame(kind, index, seconds, packed, self._lane)
        with self._lock:
            self._take_printed()
            if isinstance(made, bytes):
                self._pending.append(made)
                self._size += len(made)
            else:
                self._pending.extend(made)
                self._size += sum(len(each) for each in made)
            if kind in (1, 2, 4):
                self._left -= 1
            last = self._left == 0
            if last or self._size >= FLUSH_BYTES or kind == 3:
                self._flush(last)
            elif time.monotonic() - self._flushed >= FLUSH_S:
                self._flush(False)
        if last:
            self.done.set()

    def gone(self) -> None:
        """A call of a cancelled request has ended without an outcome."""
        with self._lock:
            self._left -= 1
        self.cancelled = True
        self.done.set()

    def _flush(self, last: bool) -> None:
        pieces, self._pending = self._pending, []
        size, self._size = self._size, 0
        self._flushed = time.monotonic()
        if self.cancelled:
            self._drop()
            return
        try:
            if last and not self._begun:
                head = self._head + f"Content-Length: {size}\r\n\r\n".encode()
                self._send([head, *pieces])
            else:
                out: List[Buffer] = []
                if not self._begun:
                    self._begun = True
                    out.append(self._head + b"Transfer-Encoding: chunked\r\n\r\n")
                if size:
                    out += [f"{size:x}\r\n".encode(), *pieces, b"\r\n"]
                if last:
                    out.append(b"0\r\n\r\n")
                self._send(out)
        except OSError:
            self.cancelled = True
        if self.cancelled:
            self._drop()

    def _drop(self) -> None:
        """What lies in shared memory for a caller that has gone."""
        for name in self._lane or []:
            _lane.drop(name)

    def _send(self, pieces: List[Buffer]) -> None:
        if sum(len(each) for each in pieces) < FLUSH_BYTES:
            self._peer.sock.sendall(b"".join(pieces))
        else:
            send_pieces(self._peer.sock, pieces)

    def flush_old(self, alive: bool) -> None:
        """Sends what has waited; `alive`: at least that the worker still works."""
        # While a large result is being sent, its thread holds the lock: nothing needs to be said.
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.done.is_set():
                return
            self._take_printed()
            if alive:
                made = frame(ALIVE, 0, 0.0, Packed(b""))
                assert isinstance(made, bytes)
                self._pending.append(made)
                self._size += len(made)
            if self._pending:
                self._flush(False)
        finally:
            self._lock.release()


class Worker:
    def __init__(self, revision: str) -> None:
        with open("function.json", encoding="utf-8") as file:
            self.about: Dict[str, Any] = json.load(file)
        self.revision = revision
        self.executor: Any = None
        self.handler: Optional[Callable[[Peer, Body], bool]] = None  # of web endpoints
        self.trouble = ""  # why the function could not be loaded
        self.ready = threading.Event()
        self._secret = str(self.about["secret"])
        self._job = os.environ.get("BILLOW_JOB_ID", "")
        self.gateway: Dict[str, str] = {}  # how this function can call itself

    # ---- connections
    def listen(self) -> None:
        port = int(os.environ["PORT"])
        server = socket.create_server((str(self.about["listen"]), port), backlog=256)
        threading.Thread(target=self._accept, args=(server,), daemon=True, name="accept").start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError as problem:
                print(f"billow: cannot accept connections: {problem}", file=sys.stderr)
                time.sleep(0.1)
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(Peer(sock),), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        try:
            while True:
                body = peer.next_request()
                if body is None or not self._answer(peer, body):
                    return
                if peer.headers.get("connection", "").lower() == "close" or not body.done:
                    return
        except (OSError, ValueError):
            return  # a peer that has gone, or does not speak HTTP
        except Exception:
            traceback.print_exc()
        finally:
            peer.close()

    def _answer(self, peer: Peer, body: Body) -> bool:
        if peer.method == "GET" and peer.target == "/.billow/health":
            peer.respond(200 if self.ready.is_set() else 503, b"{}")
            return True
        trusted = hmac.compare_digest(
            peer.headers.get("x-billow-secret", "").encode(), self._secret.encode()
        )
        if trusted and peer.method == "GET" and peer.target == "/.billow/hello":
            self.ready.wait()
            peer.respond(200, json.dumps(self.hello()).encode())
            return True
        if self.trouble and self.about["kind"] != "function" and not trusted:
            peer.refuse(500, "the endpoint could not be loaded; see its log")
            return False
        if self.handler is not None:
            return self.handler(peer, body)
        if peer.method != "POST" or peer.target != "/.billow/call":
            peer.refuse(404, "a function has no pages: call it with the Python package billow")
            return True
        if not trusted:
            peer.refuse(403, "the secret of the call is not that of this function")
            return False
        if peer.headers.get("x-billow-revision", self.revision) != self.revision:
            peer.refuse(409, f"this worker has revision {self.revision}")
            return False
        return self._calls(peer, body)

    def _calls(self, peer: Peer, body: Body) -> bool:
        try:
            calls = read_calls(body)
        except _lane.LaneLost as problem:
            peer.refuse(410, str(problem))
            return False
        if self.trouble:
            peer.refuse(400, f"the function could not be loaded:\n{self.trouble}")
            return True
        self._learn(peer)
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
            f"X-Billow-Job: {self._job}\r\nX-Billow-Lane: {_lane.identity()}\r\n"
        ).encode()
        if not calls:
            peer.respond(200, b"", "application/octet-stream")
            return True
        own = _lane.identity()
        shares = bool(own) and peer.headers.get("x-billow-lane") == own
        prints = "x-billow-output" in peer.headers
        answer = Answer(peer, len(calls), head, shares, prints)
        self.executor.submit(calls, answer)
        self._watch(peer, answer)
        return not answer.cancelled

    def _watch(self, peer: Peer, answer: Answer) -> None:
        """Until the answer is complete: sends what waits, and notices a caller that has gone."""
        if answer.done.wait(FLUSH_S):
            return
        began = said = time.monotonic()
        while not answer.done.wait(LOOK_S):
            now = time.monotonic()
            alive = now - said >= ALIVE_EVERY_S or (now - began >= WHOLE_WITHIN_S and said == began)
            answer.flush_old(alive)
            if alive:
                said = now
            if answer.cancelled or peer.has_gone():
                answer.cancelled = True
                self.executor.cancel(answer)
                answer.done.wait(60.0)
                return

    def _learn(self, peer: Peer) -> None:
        """Where the gateway is, for a function that calls itself."""
        if self.gateway or "x-forwarded-host" not in peer.headers:
            return
        proto = peer.headers.get("x-forwarded-proto", "http")
        host, prefix = peer.headers["x-forwarded-host"], peer.headers.get("x-forwarded-prefix", "")
        self.gateway = {
            "url": f"{proto}://{host}{prefix}/",
            "key": peer.headers.get("x-billow-key", ""),
            "secret": self._secret,
            "revision": self.revision,
            "fingerprint": peer.headers.get("x-billow-pin", ""),
        }

    # ---- the function
    def hello(self) -> Dict[str, Any]:
        """What a caller compares before its first call."""
        have: Dict[str, Optional[str]] = {}
        for name in self.about.get("packages", {}):
            try:
                have[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                have[name] = None
        return {
            "revision": self.revision,
            "python": platform.python_version(),
            "executable": sys.executable,
            "packages": have,
            "trouble": self.trouble,
            "job": self._job,
            "lane": _lane.identity(),
        }

    def load(self) -> None:
        wanted = str(self.about["python"]).split(".")[:2]
        if wanted != platform.python_version().split(".")[:2]:
            # Code of one version does not run in another; callers are told by `hello`.
            self.trouble = f"it needs Python {'.'.join(wanted)}"
            return
        from ._load import load_function

        try:
            load_function(self)
        except BaseException:
            self.trouble = traceback.format_exc()
            print(self.trouble, file=sys.stderr)


worker: Optional[Worker] = None


def end(*_: Any) -> None:
    raise SystemExit(0)


def main(arguments: List[str]) -> None:
    global worker
    if len(arguments) != 3 or "PORT" not in os.environ:
        raise Error("billow._worker is started by Billow: it serves a function on $PORT")
    faulthandler.enable()
    sys.path.insert(0, os.getcwd())
    if "" in sys.path:
        sys.path.remove("")
    _output.tee()
    worker = Worker(arguments[1])
    signal.signal(signal.SIGTERM, end)
    if worker.about["kind"] != "web_server":
        worker.listen()
    worker.load()
    if worker.trouble and worker.about["kind"] == "web_server":
        raise SystemExit(1)
    worker.ready.set()
    try:
        if worker.executor is not None:
            worker.executor.serve()
        threading.Event().wait()
    finally:
        from ._load import unload

        unload()


if __name__ == "__main__":
    # Under its real name, so that nested functions find the one worker of this process.
    from billow import _worker as module

    module.main(sys.argv)
