"""The head's API: JSON in and out, problem documents as errors. `Client` blocks; `AsyncClient` is
the same for asyncio, on threads."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
)
from urllib.parse import quote, urlencode

from ._connect import Head, find_head
from ._errors import ApiError, ConnectionFailed, Error, NotFound
from ._http import Buffer, Connection, Pool, Response

if TYPE_CHECKING:
    from ._group import Group
    from ._jobs import Grid, Job

T = TypeVar("T")

BUSY_ATTEMPTS_MAX = 300
STREAM_QUIET_S = 120.0


def error_of(status: int, body: bytes, who: str = "the head") -> ApiError:
    """What a problem document (RFC 9457), or any other refusal, says."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    message = str(problem.get("detail") or problem.get("title") or f"{who} answered {status}")
    kind = NotFound if status == 404 else ApiError
    return kind(status, message, str(problem.get("hint", "")), str(problem.get("code", "")))


class Client:
    """A connection to a head. Without arguments it finds the same head as the command line."""

    def __init__(self, head: Optional[str] = None, data: Optional[str] = None) -> None:
        self._asked = (head, data)
        self.head: Head = find_head(head, data)
        self._pool = Pool(self.head.address)
        self._status: Optional[Dict[str, Any]] = None

    def __repr__(self) -> str:
        return f"<billow.Client {self.head.address.text}>"

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- requests
    def _connect(self) -> Connection:
        for attempt in range(BUSY_ATTEMPTS_MAX):
            try:
                return self._pool.take()
            except OSError as problem:
                # A local socket whose queue is full refuses for a moment: the head is only busy.
                if problem.errno == errno.EAGAIN and attempt + 1 < BUSY_ATTEMPTS_MAX:
                    time.sleep(0.01)
                    continue
                raise ConnectionFailed(
                    f"cannot connect to the head at {self.head.address.text}: {problem}",
                    "check the address, and that `billow up` is running there",
                ) from None
        raise AssertionError("unreachable")

    def send(
        self,
        method: str,
        target: str,
        body: Union[Buffer, List[Buffer]] = b"",
        headers: Optional[Dict[str, str]] = None,
        timeout: float = 60.0,
    ) -> Tuple[Connection, Response]:
        """A request whose answer is still to be read. An idle connection that the head has closed
        meanwhile is replaced; apart from that nothing is sent twice."""
        all_headers = {"Authorization": f"Bearer {self.head.token}", **(headers or {})}
        while True:
            connection = self._connect()
            fresh = not connection.used
            connection.set_timeout(timeout)
            try:
                response = connection.request(method, target, all_headers, body)
            except OSError as problem:
                connection.close()
                if not fresh and method == "GET":
                    continue
                raise ConnectionFailed(
                    f"the head at {self.head.address.text} did not answer: {problem}",
                    "is it running? see `billow status`",
                ) from None
            return connection, response

    def octets(
        self,
        method: str,
        target: str,
        body: Union[Buffer, List[Buffer]] = b"",
        headers: Optional[Dict[str, str]] = None,
        timeout: float = 120.0,
    ) -> bytes:
        connection, response = self.send(method, target, body, headers, timeout)
        try:
            answer = response.read()
        except OSError as problem:
            raise ConnectionFailed(f"the answer of the head broke off: {problem}") from None
        finally:
            self._pool.give(connection)
        if response.status >= 300:
            raise error_of(response.status, answer)
        return answer

    def call(
        self,
        method: str,
        target: str,
        body: Optional[object] = None,
        headers: Optional[Dict[str, str]] = None,
        timeout: float = 60.0,
    ) -> Dict[str, Any]:
        """One call of the API: `client.call("GET", "/v1/nodes")`."""
        data = b"" if body is None else json.dumps(body).encode()
        if data:
            headers = {"Content-Type": "application/json", **(headers or {})}
        answer = self.octets(method, target, data, headers, timeout)
        if not answer:
            return {}
        try:
            document = json.loads(answer)
        except ValueError:
            raise Error(
                f"the answer to {target} is not JSON", f"is {self.head.address.text} a head?"
            ) from None
        return document if isinstance(document, dict) else {"value": document}

    def get(self, target: str, **query: object) -> Dict[str, Any]:
        given = {name: value for name, value in query.items() if value is not None}
        return self.call("GET", target + ("?" + urlencode(given) if given else ""))

    def post(self, target: str, body: object = None) -> Dict[str, Any]:
        return self.call("POST", target, {} if body is None else body)

    def put(self, target: str, body: object) -> Dict[str, Any]:
        return self.call("PUT", target, body)

    def delete(self, target: str) -> Dict[str, Any]:
        return self.call("DELETE", target)

    def events(self, target: str) -> Iterator[Tuple[str, str, str]]:
        """(event, id, data) of an event stream, as they arrive."""
        connection, response = self.send("GET", target, timeout=STREAM_QUIET_S)
        try:
            if response.status >= 300:
                raise error_of(response.status, response.read())
            pending = b""
            for piece in response.pieces():
                pending += piece
                *blocks, pending = pending.split(b"\n\n")
                for block in blocks:
                    fields: Dict[str, str] = {}
                    for line in block.decode("utf-8", "replace").split("\n"):
                        name, _, value = line.partition(":")
                        fields[name] = value[1:] if value.startswith(" ") else value
                    if "event" in fields or "data" in fields:
                        yield fields.get("event", ""), fields.get("id", ""), fields.get("data", "")
        finally:
            if response.done:
                self._pool.give(connection)
            else:
                connection.close()

    # ---- what most callers need to know
    def status(self) -> Dict[str, Any]:
        return self.get("/v1/status")

    @property
    def user(self) -> str:
        if self._status is None:
            self._status = self.status()
        return str(self._status.get("you", {}).get("user", ""))

    def jobs(self, state: str = "active", limit: int = 100) -> List[Dict[str, Any]]:
        return list(self.get("/v1/jobs", state=state, limit=limit).get("jobs", []))

    def nodes(self) -> List[Dict[str, Any]]:
        return list(self.get("/v1/nodes").get("nodes", []))

    def endpoints(self) -> List[Dict[str, Any]]:
        return list(self.get("/v1/endpoints").get("endpoints", []))

    def endpoint(self, name: str) -> Dict[str, Any]:
        return self.get(f"/v1/endpoints/{quote(name, safe='')}")

    def log(self, job: str, follow: bool = False, rank: int = 0) -> Iterator[Tuple[str, bytes]]:
        """("out" or "err", octets) of a job's log. If the head restarts meanwhile, reading goes on
        where it stopped."""
        offset, patience = "0", 60.0
        while True:
            target = f"/v1/jobs/{job}/logs?format=sse&offset={offset}&rank={rank}"
            try:
                for event, number, data in self.events(target + ("&follow=1" if follow else "")):
                    patience = 60.0
                    offset = number or offset
                    if event in ("out", "err"):
                        yield event, base64.b64decode(data)
                    elif event == "error":
                        raise Error(data)
                    elif event == "end":
                        return
                if not follow:
                    return
            except (OSError, ConnectionFailed):
                if not follow or patience <= 0:
                    raise
            patience -= 0.2
            time.sleep(0.2)


_default: Optional[Client] = None
_default_pid = 0
_default_lock = threading.Lock()


def default_client() -> Client:
    """The client that functions and jobs use if none is given."""
    global _default, _default_pid
    with _default_lock:
        if _default is None or _default_pid != os.getpid():
            _default, _default_pid = Client(), os.getpid()
        return _default


def connect(head: Optional[str] = None, data: Optional[str] = None) -> Client:
    """Uses this head from now on: a URL (`https://HEAD:7070`) or a data directory."""
    global _default, _default_pid
    client = Client(head, data)
    with _default_lock:
        _default, _default_pid = client, os.getpid()
    return client


# ---- asyncio

_threads: Optional[ThreadPoolExecutor] = None
_threads_lock = threading.Lock()


def in_thread(call: Callable[..., T], *args: Any, **named: Any) -> "asyncio.Future[T]":
    """Runs a blocking call on a thread of the package; awaits like a coroutine."""
    global _threads
    with _threads_lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(128, thread_name_prefix="billow-aio")
        threads = _threads
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(threads, lambda: call(*args, **named))


class AsyncClient:
    """`Client` for asyncio: the same methods, awaited."""

    def __init__(self, head: Optional[str] = None, data: Optional[str] = None) -> None:
        self.client = Client(head, data)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()

    async def call(self, method: str, target: str, body: Optional[object] = None) -> Dict[str, Any]:
        return await in_thread(self.client.call, method, target, body)

    async def get(self, target: str, **query: object) -> Dict[str, Any]:
        return await in_thread(self.client.get, target, **query)

    async def post(self, target: str, body: object = None) -> Dict[str, Any]:
        return await in_thread(self.client.post, target, body)

    async def put(self, target: str, body: object) -> Dict[str, Any]:
        return await in_thread(self.client.put, target, body)

    async def delete(self, target: str) -> Dict[str, Any]:
        return await in_thread(self.client.delete, target)

    async def status(self) -> Dict[str, Any]:
        return await in_thread(self.client.status)

    async def jobs(self, state: str = "active", limit: int = 100) -> List[Dict[str, Any]]:
        return await in_thread(self.client.jobs, state, limit)

    async def nodes(self) -> List[Dict[str, Any]]:
        return await in_thread(self.client.nodes)

    async def endpoints(self) -> List[Dict[str, Any]]:
        return await in_thread(self.client.endpoints)

    async def endpoint(self, name: str) -> Dict[str, Any]:
        return await in_thread(self.client.endpoint, name)

    async def submit(self, command: Any, **options: Any) -> Job:
        """`billow.submit`; the job can be awaited, and `alogs` follows its output."""
        from ._jobs import submit

        return await in_thread(submit, command, client=self.client, **options)

    async def grid(self, command: Any, **options: Any) -> Grid:
        """`billow.grid`; the jobs can be awaited together."""
        from ._jobs import grid

        return await in_thread(grid, command, client=self.client, **options)

    async def group(self, roles: Mapping[str, Any], **options: Any) -> Group:
        """`billow.group`; the group can be awaited, and `alogs` follows its members."""
        from ._group import group

        return await in_thread(group, roles, client=self.client, **options)


async def over(iterator: Iterator[T]) -> AsyncIterator[T]:
    """The values of a blocking iterator, each awaited."""
    end = object()
    while True:
        value = await in_thread(next, iterator, end)
        if value is end:
            return
        yield value
