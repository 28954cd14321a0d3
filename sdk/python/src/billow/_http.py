"""HTTP/1.1 over a Unix socket, TCP or TLS: one connection, kept alive, without copies of bodies.

The standard library's http.client parses headers as e-mail and copies bodies. A call of a function
that takes microseconds and arrays of a gigabyte both go through here, so heads are split by hand
and bodies are received into the buffers that they end up in.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import select
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union
from urllib.parse import urlsplit

from ._errors import ConnectionFailed

Buffer = Union[bytes, bytearray, memoryview]

HEAD_BYTES_MAX = 64 << 10
SMALL_BODY_BYTES = 64 << 10  # sent in one piece with the head
RECEIVE_BYTES = 128 << 10
PIECES_PER_SEND = 512  # below the kernel's limit of 1024


@dataclass(frozen=True)
class Tls:
    """How a server is verified: its own authority (`ca`), a pinned fingerprint, or the system."""

    ca: str = ""
    fingerprint: str = ""


@dataclass(frozen=True)
class Address:
    host: str = ""
    port: int = 0
    unix_path: str = ""
    tls: Optional[Tls] = None

    @property
    def text(self) -> str:
        if self.unix_path:
            return f"unix://{self.unix_path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        return bool(self.unix_path) or self.host in ("localhost", "::1") or self.host[:4] == "127."


def parse_address(url: str, tls: Tls = Tls()) -> Address:
    """`https://host:7070`, `http://127.0.0.1:7070` or `unix:///path`, as the command line takes."""
    text = url.strip()
    if text.startswith("unix:"):
        return Address(unix_path=text[5:].replace("//", "", 1) if text[5:7] == "//" else text[5:])
    if text.startswith("/"):
        return Address(unix_path=text)
    if "://" not in text:
        text = "http://" + text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise ConnectionFailed(f'"{url}" is not an address: {problem}') from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConnectionFailed(
            f'"{url}" is not an address', "write https://HOST:7070 or unix:///path/head.sock"
        )
    secure = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if secure else 80), "", tls if secure else None)


# ---- TLS

_contexts: Dict[Any, ssl.SSLContext] = {}
_contexts_lock = threading.Lock()


def _chain(connection: ssl.SSLSocket) -> List[bytes]:
    """The certificates that the server sent, in DER, before they are trusted."""
    leaf = connection.getpeercert(binary_form=True)
    chain = [leaf] if leaf else []
    inner: Any = getattr(connection, "_sslobj", None)
    get: Any = getattr(connection, "get_unverified_chain", None) or getattr(
        inner, "get_unverified_chain", None
    )
    if get is not None:
        for each in get() or []:
            if isinstance(each, bytes):
                chain.append(each)
            else:
                chain.append(ssl.PEM_cert_to_DER_cert(each.public_bytes()))
    return chain


def _same_fingerprint(certificate: bytes, pin: str) -> bool:
    return hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), pin)


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _pinned(sock: socket.socket, address: Address, pin: str) -> ssl.SSLSocket:
    """A connection whose server proved to have the pinned certificate, or one signed by it."""
    known = (address.host, pin)
    with _contexts_lock:
        context = _contexts.get(known)
    if context is not None:
        return context.wrap_socket(sock, server_hostname=address.host)
    # The first connection only shows the chain. Nothing is sent on it unless the server's own
    # certificate is the pinned one; with a pinned authority, a second one is verified against it.
    first = _unverified().wrap_socket(sock, server_hostname=address.host)
    chain = _chain(first)
    if chain and _same_fingerprint(chain[0], pin):
        return first
    for certificate in chain[1:]:
        if not _same_fingerprint(certificate, pin):
            continue
        first.close()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(certificate))
        with _contexts_lock:
            _contexts[known] = context
        again = socket.create_connection((address.host, address.port), sock.gettimeout())
        return context.wrap_socket(again, server_hostname=address.host)
    first.close()
    raise ConnectionFailed(
        f"the certificate of {address.text} does not have the expected fingerprint",
        "log in again with a new token if the head was set up again: billow login URL",
    )


def _secured(sock: socket.socket, address: Address) -> ssl.SSLSocket:
    tls = address.tls or Tls()
    pin = tls.fingerprint.replace(":", "").lower()
    if pin:
        return _pinned(sock, address, pin)
    with _contexts_lock:
        context = _contexts.get(tls)
        if context is None:
            context = ssl.create_default_context(cafile=tls.ca or None)
            _contexts[tls] = context
    return context.wrap_socket(sock, server_hostname=address.host)


def _open(address: Address, timeout: Optional[float]) -> socket.socket:
    if address.unix_path:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            sock.connect(address.unix_path)
        except OSError:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((address.host, address.port), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _secured(sock, address) if address.tls else sock


def send_pieces(sock: socket.socket, pieces: Sequence[Buffer]) -> None:
    """Sends buffers one after the other without joining them."""
    views = [memoryview(each).cast("B") for each in pieces if len(each)]
    if isinstance(sock, ssl.SSLSocket):
        for view in views:
            sock.sendall(view)
        return
    first = 0
    while first < len(views):
        sent = sock.sendmsg(views[first : first + PIECES_PER_SEND])
        while first < len(views) and sent >= len(views[first]):
            sent -= len(views[first])
            first += 1
        if sent:
            views[first] = views[first][sent:]


# ---- answers


class BrokenAnswer(ConnectionError):
    """The connection ended, or what arrived on it is not HTTP. `began`: a head had arrived."""

    def __init__(self, message: str, began: bool = False) -> None:
        super().__init__(message)
        self.began = began


class Stream:
    """Octets of a socket, read ahead where they are small and into place where they are large."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.buffer)
        self.at = 0
        self.end = 0

    def fill(self) -> None:
        if self.at == self.end:
            self.at = self.end = 0
        elif self.end == len(self.buffer):
            rest = bytes(self.view[self.at : self.end])
            self.buffer[: len(rest)] = rest
            self.at, self.end = 0, len(rest)
        got = self.sock.recv_into(self.view[self.end :])
        if got == 0:
            raise BrokenAnswer("the connection was closed")
        self.end += got

    def line(self) -> bytes:
        while True:
            found = self.buffer.find(b"\n", self.at, self.end)
            if found >= 0:
                line = bytes(self.view[self.at : found])
                self.at = found + 1
                return line[:-1] if line.endswith(b"\r") else line
            if self.end - self.at >= HEAD_BYTES_MAX:
                raise BrokenAnswer("a line of the answer is too long")
            self.fill()

    def receive_into(self, view: memoryview) -> int:
        here = self.end - self.at
        if here:
            size = min(here, len(view))
            view[:size] = self.view[self.at : self.at + size]
            self.at += size
            return size
        # Large pieces go straight to where they belong; small ones are read ahead.
        if len(view) >= 16 << 10:
            return self.sock.recv_into(view)
        got = self.sock.recv_into(self.view)
        self.at, self.end = 0, got
        return self.receive_into(view) if got else 0


class Body:
    """The body of a message, read from its stream as it arrives."""

    def __init__(self, stream: Stream, headers: Dict[str, str], length: Optional[int]) -> None:
        """`length`: of a body that is not chunked; None: until the connection ends."""
        self.headers = headers
        self.stream = stream
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left: Optional[int] = 0 if self._chunked else length  # of it, or of this chunk
        self.done = not self._chunked and length == 0

    def ended(self) -> None:
        self.done = True

    def _next_chunk(self) -> None:
        """Reads the line before the next chunk; the last one ends the body."""
        take = self.stream.line
        line = take()
        try:
            self._left = int(line.split(b";", 1)[0], 16)
        except ValueError:
            raise BrokenAnswer("the answer is not valid HTTP", True) from None
        if self._left == 0:
            while take():
                pass
            self.ended()

    def read_into(self, view: memoryview) -> int:
        """Fills as much of `view` as has arrived; 0 only at the end of the body."""
        if self.done or len(view) == 0:
            return 0
        if self._chunked and self._left == 0:
            self._next_chunk()
            if self.done:
                return 0
        limit = len(view) if self._left is None else min(len(view), self._left)
        got = self.stream.receive_into(view[:limit])
        if got == 0:
            if self._left is None:
                self.ended()
                return 0
            raise BrokenAnswer("the connection ended within an answer", True)
        if self._left is not None:
            self._left -= got
            if self._left == 0:
                if self._chunked:
                    self.stream.line()
                else:
                    self.ended()
        return got

    def may_have(self, size: int) -> bool:
        """Whether that many octets can follow, before memory is taken for them."""
        return self._chunked or self._left is None or size <= self._left

    def read_exactly(self, size: int) -> Optional[bytes]:
        """`size` octets; None at the end of the body."""
        stream = self.stream
        left = self._left
        # Most frames lie completely within what has been received already.
        if left is not None and size < left and stream.end - stream.at >= size:
            at = stream.at
            stream.at = at + size
            self._left = left - size
            return bytes(stream.buffer[at : at + size])
        out = bytearray(size)
        if not self.fill(memoryview(out)):
            return None
        return bytes(out)

    def fill(self, view: memoryview) -> bool:
        """Fills the whole of `view`; False if the body ended before its first octet."""
        at, size = 0, len(view)
        while at < size:
            got = self.read_into(view[at:])
            if got == 0:
                if at == 0:
                    return False
                raise BrokenAnswer("the answer ended early", True)
            at += got
        return True

    def read(self, size_max: int = 64 << 20) -> bytes:
        """The rest of the body."""
        out: List[bytes] = []
        size = 0
        scratch = memoryview(bytearray(RECEIVE_BYTES))
        while True:
            got = self.read_into(scratch)
            if got == 0:
                return b"".join(out)
            size += got
            if size > size_max:
                raise BrokenAnswer(f"the answer exceeds {size_max} bytes", True)
            out.append(bytes(scratch[:got]))

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives."""
        scratch = memoryview(bytearray(RECEIVE_BYTES))
        while True:
            got = self.read_into(scratch)
            if got == 0:
                return
            yield bytes(scratch[:got])


class Response(Body):
    """An answer. Its connection can be used again when the body has been read."""

    def __init__(self, connection: Connection, status: int, headers: Dict[str, str]) -> None:
        length = headers.get("content-length")
        none = status in (204, 304) or status < 200
        super().__init__(
            connection.stream, headers, 0 if none else None if length is None else int(length)
        )
        self.status = status
        self._connection = connection
        if self.done:
            self.ended()

    def ended(self) -> None:
        super().ended()
        stays = self._left is not None and self.headers.get("connection", "").lower() != "close"
        self._connection.usable = stays and self.stream.at == self.stream.end


class Connection:
    """One connection. Not for several threads at once, except `close`."""

    def __init__(self, address: Address, timeout: Optional[float] = 60.0) -> None:
        self.address = address
        self._host = "localhost" if address.unix_path else address.host
        if address.port and address.port not in (80, 443):
            self._host = f"{self._host}:{address.port}"
        try:
            sock = _open(address, timeout)
        except ssl.SSLError as problem:
            raise ConnectionFailed(
                f"the certificate of {address.text} is not trusted: {problem}",
                "log in with a token that has the head's fingerprint: billow login URL",
            ) from None
        self._sock = sock
        self.stream = Stream(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._timeout = timeout
        self.usable = True
        self.used = False

    def abort(self) -> None:
        """Ends it for a thread that uses it at the moment, which then closes it. Closing it here
        would free its number for another connection, which that thread might wait for instead."""
        self.usable = False
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.abort()
        self._sock.close()

    def set_timeout(self, timeout: Optional[float]) -> None:
        if timeout != self._timeout:
            self._timeout = timeout
            self._sock.settimeout(timeout)

    def peer_has_closed(self) -> bool:
        """Whether something arrived while nothing was asked: its end, or nonsense."""
        if isinstance(self._sock, ssl.SSLSocket):
            return False  # what waits may be a session ticket
        return bool(self._poll.poll(0))

    # ---- sending
    def request(
        self,
        method: str,
        target: str,
        headers: Optional[Dict[str, str]] = None,
        body: Union[Buffer, Sequence[Buffer]] = b"",
    ) -> Response:
        """Sends a request and returns its answer when the head has arrived."""
        pieces: List[Buffer] = (
            [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
        )
        size = sum(each.nbytes if isinstance(each, memoryview) else len(each) for each in pieces)
        lines = [f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\n"]
        for name, value in (headers or {}).items():
            lines.append(f"{name}: {value}\r\n")
        if size or method not in ("GET", "HEAD", "DELETE"):
            lines.append(f"Content-Length: {size}\r\n")
        lines.append("\r\n")
        head = "".join(lines).encode("latin-1")
        self.usable = False  # until the answer has been read
        self.used = True
        try:
            if size <= SMALL_BODY_BYTES:
                self._sock.sendall(head + b"".join(pieces) if size else head)
            else:
                send_pieces(self._sock, [head, *pieces])
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a body says why and closes: its answer may have arrived.
            pass
        return self._head()

    def _head(self) -> Response:
        while True:
            try:
                words = self.stream.line().split(b" ", 2)
            except OSError as problem:
                if isinstance(problem, (BrokenAnswer, socket.timeout)):
                    raise
                raise BrokenAnswer(f"the connection broke: {problem}") from None
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise BrokenAnswer("the answer is not HTTP")
            status = int(words[1])
            headers: Dict[str, str] = {}
            while True:
                line = self.stream.line()
                if not line:
                    break
                name, _, value = line.partition(b":")
                headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
            if status >= 200:
                return Response(self, status, headers)


class Pool:
    """Connections to one address that wait for the next request."""

    def __init__(self, address: Address, timeout: Optional[float] = 60.0, idle_max: int = 64):
        self.address = address
        self._timeout = timeout
        self._idle_max = idle_max
        self._idle: List[Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def take(self) -> Connection:
        with self._lock:
            if self._pid != os.getpid():  # a forked child must not share its parent's connections
                self._idle.clear()
                self._pid = os.getpid()
            idle = self._idle
            while idle:
                connection = idle.pop()
                if not connection.peer_has_closed():
                    connection.set_timeout(self._timeout)
                    return connection
                connection.close()
        return Connection(self.address, self._timeout)

    def give(self, connection: Connection) -> None:
        if connection.usable:
            with self._lock:
                if len(self._idle) < self._idle_max and self._pid == os.getpid():
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
