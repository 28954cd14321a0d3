"""The worker's side of web endpoints: a function over HTTP, an ASGI application, a web server."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import tempfile
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Dict, List, Tuple
from urllib.parse import parse_qsl, unquote

from ._http import Body

if TYPE_CHECKING:
    from ._worker import Peer, Worker

BODY_BYTES_MAX = 64 << 20
SERVER_STARTS_WITHIN_S = 600.0

_FALSE = frozenset({"", "0", "false", "no", "off"})


def load_web(worker: "Worker", kind: str, loaded: Tuple[Any, Dict[str, Any]]) -> None:
    function, extra = loaded
    if kind == "endpoint":
        worker.handler = _Plain(function, extra["method"]).handle
    elif kind == "asgi":
        worker.handler = Asgi(function()).handle
    else:
        _leave_files([str(each) for each in worker.about.get("include", [])])
        _start_server(function, int(worker.about["port"]))


# ---- a function


class BadParameter(ValueError):
    pass


_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


def _converted(value: Any, annotation: Any, name: str) -> Any:
    """A parameter as its annotation wants it. That of a query is text; that of a JSON object may
    be, where a number is wanted."""
    wanted = _TYPES.get(annotation, annotation) if isinstance(annotation, str) else annotation
    if wanted not in (int, float, bool, str):
        return value
    if isinstance(value, str) and wanted is not str:
        try:
            return value.lower() not in _FALSE if wanted is bool else wanted(value)
        except ValueError:
            raise BadParameter(f"{name}={value!r} is not a number") from None
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise BadParameter(f"{name}={value!r} is not of type {wanted.__name__}")
    return value


class _Plain:
    def __init__(self, function: Callable[..., Any], method: str) -> None:
        self._function = function
        self._method = method
        self._parameters = inspect.signature(function).parameters

    def _converted(self, name: str, value: Any) -> Any:
        known = self._parameters.get(name)
        if value is None or known is None:
            return value
        return _converted(value, known.annotation, name)

    def _arguments(self, peer: "Peer", body: Body) -> Dict[str, Any]:
        named: Dict[str, Any] = {}
        for name, value in parse_qsl(peer.target.partition("?")[2], keep_blank_values=True):
            named[name] = self._converted(name, value)
        content = body.read(BODY_BYTES_MAX)
        if content:
            try:
                given = json.loads(content)
            except ValueError:
                raise BadParameter("the body is not JSON") from None
            if not isinstance(given, dict):
                raise BadParameter("the body is not a JSON object with the parameters")
            named.update({name: self._converted(name, value) for name, value in given.items()})
        try:
            inspect.signature(self._function).bind(**named)
        except TypeError as problem:
            raise BadParameter(str(problem)) from None
        return named

    def handle(self, peer: "Peer", body: Body) -> bool:
        if peer.method not in (self._method, "HEAD"):
            peer.refuse(405, f"call it with {self._method}")
            return False
        try:
            named = self._arguments(peer, body)
        except BadParameter as problem:
            peer.refuse(400, str(problem))
            return body.done
        try:
            value = self._function(**named)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            if inspect.isgenerator(value):
                return self._stream(peer, value)
            kind, octets = _encoded(value)
        except Exception:
            traceback.print_exc()
            peer.refuse(500, "the function raised an exception; see the log of the endpoint")
            return True
        peer.respond(200, octets, kind)
        return True

    def _stream(self, peer: "Peer", values: Any) -> bool:
        peer.sock.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for value in values:
            octets = _encoded(value)[1]
            if octets:
                peer.sock.sendall(f"{len(octets):x}\r\n".encode() + octets + b"\r\n")
        peer.sock.sendall(b"0\r\n\r\n")
        return True


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _encoded(value: Any) -> Tuple[str, bytes]:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "application/octet-stream", bytes(value)
    if isinstance(value, str):
        return "text/plain; charset=utf-8", value.encode()
    return "application/json", json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Arrays and numbers of NumPy and PyTorch, as JSON knows them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(
        f"a result of type {type(value).__name__} is not JSON: return text, octets, numbers, lists"
        " or dictionaries"
    )


# ---- ASGI


class Asgi:
    """As much of ASGI 3 as HTTP needs; no WebSockets."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="asgi").start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    async def _start(self) -> None:
        """The application's start-up. Applications without one may refuse the question."""
        started = asyncio.Event()
        failed: List[str] = []
        asked = False

        async def receive() -> Dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "lifespan.startup"}
            await asyncio.Event().wait()
            return {}

        async def send(message: Dict[str, Any]) -> None:
            if message["type"] == "lifespan.startup.failed":
                failed.append(str(message.get("message", "")))
            started.set()

        async def live() -> None:
            try:
                scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
                await self._app(scope, receive, send)
            except Exception:
                pass
            finally:
                started.set()

        self._living = asyncio.get_running_loop().create_task(live())
        await started.wait()
        if failed:
            raise RuntimeError(f"the application did not start: {failed[0]}")

    def handle(self, peer: "Peer", body: Body) -> bool:
        content = body.read(BODY_BYTES_MAX)
        future = asyncio.run_coroutine_threadsafe(self._request(peer, content), self._loop)
        return future.result()

    async def _request(self, peer: "Peer", content: bytes) -> bool:
        path, _, query = peer.target.partition("?")  # `urlsplit` takes //a/b for a host
        prefix = peer.headers.get("x-forwarded-prefix", "")
        host, _, port = peer.headers.get("host", "localhost").partition(":")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": peer.method,
            "scheme": peer.headers.get("x-forwarded-proto", "http"),
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": prefix,
            "headers": [
                (n.encode("latin-1"), v.encode("latin-1")) for n, v in peer.headers.items()
            ],
            "client": (peer.headers.get("x-forwarded-for", ""), 0),
            "server": (host, int(port) if port.isdigit() else 80),
        }
        reply = _AsgiReply(peer, asyncio.get_running_loop())
        given = False

        async def receive() -> Dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": content, "more_body": False}
            await reply.over.wait()
            return {"type": "http.disconnect"}

        try:
            await self._app(scope, receive, reply.send)
        except Exception:
            traceback.print_exc()
            if not reply.begun:
                peer.refuse(500, "the application raised an exception; see its log")
            return False
        return reply.complete


class _AsgiReply:
    def __init__(self, peer: "Peer", loop: asyncio.AbstractEventLoop) -> None:
        self._peer = peer
        self._loop = loop
        self._chunked = False
        self.begun = False
        self.complete = False
        self.over = asyncio.Event()

    async def _write(self, data: bytes) -> None:
        # A slow reader must not hold up the other requests.
        await self._loop.run_in_executor(None, self._peer.sock.sendall, data)

    async def send(self, message: Dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            names = {bytes(name).lower() for name, _ in message.get("headers", [])}
            self._chunked = b"content-length" not in names
            lines = [f"HTTP/1.1 {int(message['status'])} Status\r\n".encode()]
            for name, value in message.get("headers", []):
                lines.append(bytes(name) + b": " + bytes(value) + b"\r\n")
            if self._chunked:
                lines.append(b"Transfer-Encoding: chunked\r\n")
            await self._write(b"".join(lines) + b"\r\n")
        elif message["type"] == "http.response.body":
            data = bytes(message.get("body", b""))
            more = bool(message.get("more_body", False))
            if self._chunked:
                data = f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""
                data += b"" if more else b"0\r\n\r\n"
            if data:
                await self._write(data)
            if not more:
                self.complete = True
                self.over.set()


# ---- a web server


def _leave_files(included: List[str]) -> None:
    """Goes to a directory that has nothing but the included files: many servers offer the one
    they are started in to their callers."""
    root = os.getcwd()
    os.chdir(tempfile.mkdtemp(prefix="web-", dir=root))
    for each in included:
        os.symlink(os.path.join(root, each), each)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(root if each == "." else each for each in paths)


def _start_server(function: Callable[..., Any], port: int) -> None:
    """Calls the function, which starts a server and returns, and waits until it listens."""
    given = int(os.environ["PORT"])
    if port:
        function()
    else:
        function(given)
    target = port or given
    deadline = time.monotonic() + SERVER_STARTS_WITHIN_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", target), 1.0).close()
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise TimeoutError(f"nothing listens on port {target}")
    if port:
        _relay(given, port)


def _relay(listen: int, to: int) -> None:
    """Passes connections on to a server that chose its own port."""
    server = socket.create_server(("127.0.0.1", listen), backlog=256)

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while True:
                data = source.recv(256 << 10)
                if not data:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept() -> None:
        while True:
            near, _ = server.accept()
            try:
                far = socket.create_connection(("127.0.0.1", to))
            except OSError:
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True, name="relay").start()
