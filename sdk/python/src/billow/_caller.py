"""Calls of a deployed function, through the gateway, until each has exactly one outcome.

Guarantee. A call has an id and one outcome. If the worker or the gateway is lost while it may have
been running, it is sent again: it runs at least once. With `retries=0` it is never sent again after
it may have begun: it runs at most once, and its outcome is CallLost. Calls that certainly did not
reach a worker (refused connection, full queue) are always sent again.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import time
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import _lane, _output
from ._client import error_of
from ._errors import (
    CallLost,
    Cancelled,
    ConnectionFailed,
    DeployFailed,
    Error,
    RemoteTraceback,
)
from ._http import BrokenAnswer, Connection, Pool, Response, Tls, parse_address
from ._wire import (
    ALIVE,
    FAILURE,
    ITEM,
    ITEMS_END,
    OUTPUT,
    RESULT,
    Malformed,
    Packed,
    load_failure,
    read_frame,
    request_body,
    unpack,
)

LOSSES_MAX = 3  # of a call with the default retries
QUIET_S = 120.0  # a worker says every 10 s that it is alive
AWAY_S = 120.0  # how long a gateway that does not answer is waited for
AWAY_PAUSE_S = 0.1
WAITS_TOLD_AFTER_S = 8.0  # longer than a worker takes to begin its answer
WATCH_ENDS_S = 60.0  # without calls
APART_S = 60.0  # without shared memory, after a worker turned out to be elsewhere
KEY_SPREADS_S = 5.0  # until a gateway must know a new key
HOPELESS_S = 30.0  # how long an endpoint that cannot serve is asked again


REMEDY = (
    "save this environment with `billow env save NAME` and pass env=NAME, or choose an image that"
    " has the same versions"
)


class Place(NamedTuple):
    """Where a deployed function is called, and with what. It travels with nested functions."""

    url: str  # http://GATEWAY/f/NAME/
    key: str  # for the gateway
    secret: str  # for the worker
    revision: str
    fingerprint: str = ""  # of the gateway's certificate, as the head announces it


class Outcome(NamedTuple):
    value: Any
    error: Optional[BaseException]
    seconds: float
    job: str  # the replica that served it
    attempts: int


class Ended(NamedTuple):
    """What became of one request."""

    lost: str = ""  # the worker may have begun: why nobody knows
    wait_s: float = 0.0  # nothing began: how long to wait before asking again
    away: bool = False  # nothing began: no gateway answered
    problem: Optional[Error] = None  # nothing began, and asking again is useless


def raised(problem: Exception, text: str) -> Exception:
    """The exception as it is raised here, with the worker's traceback as its cause."""
    cause = RemoteTraceback(text) if text else None
    if isinstance(problem, ModuleNotFoundError) and problem.name and problem.msg:
        problem.msg += f" in the worker ({REMEDY})"
    # Not by the type's own __setattr__: exceptions that are frozen dataclasses refuse.
    BaseException.__setattr__(problem, "__cause__", cause)
    return problem


class Request:
    """Calls that are under way together; `cancel` ends them from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Optional[Connection] = None
        self.cancelled = False

    def use(self, connection: Optional[Connection]) -> None:
        with self._lock:
            self._connection = connection
            if self.cancelled and connection is not None:
                connection.abort()

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._connection is not None:
                self._connection.abort()


class _Watch:
    """Says why calls wait for a worker, once for each reason."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why
        self._asked: Dict[int, float] = {}  # connection → since when it waits for an answer
        self._running = False
        self._said = ""

    def asks(self, connection: Connection) -> None:
        self._asked[id(connection)] = time.monotonic()
        if not self._running:
            self._running = True
            threading.Thread(target=self._look, daemon=True, name="billow-watch").start()

    def answered(self, connection: Connection) -> None:
        self._asked.pop(id(connection), None)

    def _look(self) -> None:
        used = time.monotonic()
        while time.monotonic() - used < WATCH_ENDS_S:
            time.sleep(WAITS_TOLD_AFTER_S / 4)
            since = list(self._asked.values())
            if not since:
                self._said = ""
                continue
            used = time.monotonic()
            if used - min(since) < WAITS_TOLD_AFTER_S:
                continue
            try:
                why = self._why()
            except Error:
                continue
            if why and why != self._said:
                self._said = why
                _output.note(why)
        self._running = False


def _by_gateway(response: Response) -> bool:
    return "x-billow-problem" in response.headers


def _retry_after_s(response: Response) -> float:
    wait = response.headers.get("retry-after", "")
    return min(5.0, float(wait)) if wait.isdigit() else 0.5


class Caller:
    """Sends calls to one deployed function."""

    def __init__(
        self,
        place: Place,
        retries: Optional[int],
        find_again: Optional[Callable[[], Place]] = None,
        why_waiting: Optional[Callable[[], str]] = None,
    ) -> None:
        self.retries = retries
        self._find_again = find_again
        self._watch = _Watch(why_waiting) if why_waiting is not None else None
        self._lock = threading.Lock()
        self._set(place)

    def _set(self, place: Place) -> None:
        self.place = place
        self._since = time.monotonic()
        pin = Tls(fingerprint=place.fingerprint)
        address = parse_address(place.url.split("/f/", 1)[0], pin)
        plain = address.is_local or os.environ.get("BILLOW_PLAIN_GATEWAY")
        if place.fingerprint and not address.tls and not plain:
            # Every gateway also speaks TLS, with a certificate that the head vouches for.
            address = replace(address, tls=pin)
        if not address.tls and not address.is_local and not os.environ.get("BILLOW_PLAIN_GATEWAY"):
            raise ConnectionFailed(
                f"the gateway at {address.text} does not use TLS, and results are unpickled here",
                (
                    "give it a certificate (billow gateway --cert), or set BILLOW_PLAIN_GATEWAY=1"
                    " if the network in between is trusted"
                ),
            )
        self._target = "/f/" + place.url.split("/f/", 1)[1].rstrip("/")
        self._pool = Pool(address, QUIET_S)
        self._headers = {
            "X-Api-Key": place.key,
            "X-Billow-Key": place.key,  # for calls of itself that the function makes
            "X-Billow-Pin": place.fingerprint,  # …and how it knows the gateway
            "X-Billow-Secret": place.secret,
            "X-Billow-Revision": place.revision,
            "Content-Type": "application/octet-stream",
            "X-Billow-Lane": _lane.identity(),
        }
        self.shares_memory = False  # with the worker that answered last
        self._apart_until = 0.0

    def refresh(self, seen: Place) -> bool:
        """Looks for the endpoint again: the gateway may have moved, the key been removed, or
        another process deployed other code. `seen`: where it was not."""
        if self._find_again is None:
            return False
        with self._lock:
            if self.place != seen:
                return True  # another thread has found it
            place = self._find_again()
            if place == self.place:
                return False
            self._set(place)
            return True

    # ---- one request
    def ask(self, path: str, timeout: float = 600.0) -> Tuple[int, bytes]:
        """A question to a worker: (status, body). Like a call, it waits for an endpoint that cannot
        serve at the moment."""
        began = time.monotonic()
        while True:
            connection = self._pool.take()
            connection.set_timeout(timeout)
            try:
                response = connection.request("GET", self._target + path, self._headers)
                status, body = response.status, response.read()
            finally:
                self._pool.give(connection)
            if status == 401 and self._key_is_new():
                time.sleep(0.02)
            elif (
                status == 503
                and _by_gateway(response)
                and time.monotonic() - began < min(timeout, HOPELESS_S)
            ):
                time.sleep(_retry_after_s(response))
            else:
                return status, body

    def _key_is_new(self) -> bool:
        return time.monotonic() - self._since < KEY_SPREADS_S

    def _send(
        self,
        calls: List[Tuple[bytes, int, Packed]],
        request: Request,
        on_frame: Callable[[int, int, float, bytes, Any, str], None],
    ) -> Ended:
        place = self.place
        try:
            connection = self._pool.take()
        except ConnectionFailed as problem:
            if not self.place.fingerprint:
                return Ended(problem=problem)
            # A gateway that has restarted has a new certificate, of which the head will hear.
            self.refresh_quietly(place)
            return Ended(wait_s=AWAY_PAUSE_S, away=True)
        except OSError:
            self.refresh_quietly(place)
            return Ended(wait_s=AWAY_PAUSE_S, away=True)
        request.use(connection)
        lane: List[str] = []
        if self._watch is not None:
            self._watch.asks(connection)
        try:
            body = request_body(calls, lane if self.shares_memory else None)
            headers = self._headers
            if _output.wanted():
                headers = {**headers, "X-Billow-Output": "1"}
            response = connection.request("POST", self._target + "/.billow/call", headers, body)
            if self._watch is not None:
                self._watch.answered(connection)
            if response.status != 200:
                return self._refused(response, place)
            self.meets(response.headers.get("x-billow-lane", ""))
            job = response.headers.get("x-billow-job", "")
            while True:
                frame = read_frame(response)
                if frame is None:
                    return Ended()
                if frame.kind == OUTPUT:
                    _output.show(frame.data)
                elif frame.kind != ALIVE:
                    on_frame(frame.kind, frame.at, frame.seconds, frame.data, frame.buffers, job)
        except (BrokenAnswer, Malformed, socket.timeout, OSError) as problem:
            connection.close()
            return Ended(lost=str(problem) or type(problem).__name__)
        finally:
            if self._watch is not None:
                self._watch.answered(connection)
            request.use(None)
            self._pool.give(connection)
            for name in lane:
                _lane.drop(name)

    def meets(self, lane: str) -> None:
        """Remembers whether a worker shares this machine's memory."""
        own = self._headers["X-Billow-Lane"]
        apart = time.monotonic() < self._apart_until
        self.shares_memory = bool(own) and lane == own and not apart

    def refresh_quietly(self, seen: Place) -> None:
        try:
            self.refresh(seen)
        except Error:
            pass  # the head is away too; the next attempt asks again

    def _refused(self, response: Response, place: Place) -> Ended:
        body = response.read()
        by_gateway = _by_gateway(response)
        problem = error_of(response.status, body, "the gateway" if by_gateway else "the worker")
        wait_s = _retry_after_s(response)
        if not by_gateway:
            if response.status == 410:
                # Workers on several machines: the gateway chooses which of them gets a call.
                self.shares_memory = False
                self._apart_until = time.monotonic() + APART_S
                return Ended(wait_s=0.001)
            if response.status in (403, 409):
                return Ended(wait_s=0.05) if self.refresh(place) else Ended(problem=_moved(problem))
            return Ended(problem=problem)
        if response.status == 401 and self._key_is_new():
            return Ended(wait_s=0.02)
        if response.status in (401, 404):
            return Ended(wait_s=0.05) if self.refresh(place) else Ended(problem=problem)
        if response.status == 429:
            return Ended(wait_s=wait_s)
        if response.status == 503:
            return Ended(wait_s=wait_s, problem=problem)
        if response.status in (502, 504, 408):
            return Ended(lost=problem.message)
        return Ended(problem=problem)

    # ---- until every call has its outcome
    def run(
        self,
        ids: List[bytes],
        packed: List[Packed],
        request: Optional[Request] = None,
        on_item: Optional[Callable[[Any], None]] = None,
    ) -> List[Outcome]:
        """The outcomes of these calls, in order. `on_item`: of a generator, for each value."""
        request = request or Request()
        run = _Run(self, ids, packed, on_item)
        began = time.monotonic()
        hopeless_since: Optional[float] = None
        size = len(ids)
        while run.pending:
            answered_before = len(run.pending)
            sent = list(itertools.islice(run.pending, size))
            run.again.clear()
            ended = self._send(
                [(ids[i], run.attempts[i], packed[i]) for i in sent],
                request,
                lambda kind, at, *rest: run.frame(kind, sent[at], *rest),
            )
            if request.cancelled:
                run.fail_rest(Cancelled("the call was cancelled"))
                break
            if len(run.pending) < answered_before:
                began, hopeless_since = time.monotonic(), None
                size *= 2
            if ended.lost or not (ended.problem or ended.wait_s):
                run.lost(sent, ended.lost or "it did not answer all calls")
                if ended.lost:
                    # One by one, so that a call that kills its worker is found and takes no
                    # others with it.
                    size = 1
                    time.sleep(0.05)
            elif ended.problem is not None and ended.wait_s:
                hopeless_since = hopeless_since or time.monotonic()
                if time.monotonic() - hopeless_since > HOPELESS_S:
                    run.fail_rest(DeployFailed(ended.problem.message, ended.problem.hint))
                time.sleep(ended.wait_s)
            elif ended.problem is not None:
                run.fail_rest(ended.problem)
            elif ended.wait_s:
                if ended.away and time.monotonic() - began > AWAY_S:
                    run.fail_rest(
                        ConnectionFailed(
                            f"the gateway at {self._pool.address.text} does not answer",
                            "is the head running? see `billow status`",
                        )
                    )
                time.sleep(ended.wait_s)
        return run.outcomes()

    def stream(self, number: bytes, packed: Packed, request: Request) -> Iterator[Any]:
        """The values of a generator, as they come. It is not started again after the first."""
        items: List[Any] = []
        ready = threading.Condition()
        over: List[Outcome] = []

        def on_item(value: Any) -> None:
            with ready:
                while len(items) >= 64 and not request.cancelled:  # the worker waits for the reader
                    ready.wait(0.1)
                items.append(value)
                ready.notify_all()

        def work() -> None:
            try:
                outcome = self.run([number], [packed], request, on_item)[0]
            except BaseException as problem:  # a bug here must not leave the reader waiting
                outcome = Outcome(None, problem, 0.0, "", 1)
            with ready:
                over.append(outcome)
                ready.notify_all()

        threading.Thread(target=work, daemon=True, name="billow-stream").start()
        try:
            while True:
                with ready:
                    while not items and not over:
                        ready.wait()
                    if not items:
                        break
                    value = items.pop(0)
                    ready.notify_all()
                yield value
            if over[0].error is not None:
                raise over[0].error
        finally:
            if not over:
                request.cancel()


def _moved(problem: Error) -> Error:
    return DeployFailed(
        f"the function was deployed again with other code or options: {problem.message}",
        "restart this process, or give one of the two another name: @billow.function(name=…)",
    )


class _Run:
    """The calls of one request, and what is known of each."""

    def __init__(
        self,
        caller: Caller,
        ids: List[bytes],
        packed: List[Packed],
        on_item: Optional[Callable[[Any], None]],
    ) -> None:
        self._retries = caller.retries
        self._name = caller.place.url.rstrip("/").rsplit("/", 1)[-1]
        self._outcomes: List[Optional[Outcome]] = [None] * len(ids)
        self._on_item = on_item
        self._streamed = False
        self.pending: Dict[int, None] = dict.fromkeys(range(len(ids)))
        self.again: Set[int] = set()  # raised an exception, and is called once more
        self.attempts = [1] * len(ids)
        self._losses = [0] * len(ids)

    def _end(self, at: int, value: Any, error: Optional[BaseException], s: float, job: str) -> None:
        self._outcomes[at] = Outcome(value, error, s, job, self.attempts[at])
        del self.pending[at]

    def frame(
        self, kind: int, at: int, seconds: float, data: bytes, buffers: Any, job: str
    ) -> None:
        if at not in self.pending:
            return
        if kind in (RESULT, ITEM):
            try:
                value = unpack(data, buffers)
            except Exception as problem:  # of foreign code: __setstate__, a missing module
                error = Error(
                    f"the result of the call cannot be loaded here: {problem!r}",
                    "return a value whose type is importable here",
                )
                error.__cause__ = problem
                self._end(at, None, error, seconds, job)
                return
            if kind == RESULT:
                self._end(at, value, None, seconds, job)
            elif self._on_item is not None:
                self._streamed = True
                self._on_item(value)
        elif kind == ITEMS_END:
            self._end(at, None, None, seconds, job)
        elif kind == FAILURE:
            self._failed(at, data, seconds, job)

    def _failed(self, at: int, data: bytes, seconds: float, job: str) -> None:
        if self._retries and self.attempts[at] <= self._retries and not self._streamed:
            self.attempts[at] += 1
            self.again.add(at)
            return
        problem, text = load_failure(data)
        self._end(at, None, raised(problem, text), seconds, job)

    def lost(self, sent: List[int], why: str) -> None:
        """The worker went away: what had no outcome is sent again, if it may run twice."""
        limit = LOSSES_MAX if self._retries is None else self._retries
        for at in sent:
            if at not in self.pending or at in self.again:
                continue
            if len(sent) == 1 or limit == 0:
                self._losses[at] += 1
            if self._losses[at] > limit or self._streamed:
                hint = (
                    "retries=0: a call that may have begun is not sent again"
                    if limit == 0
                    else (
                        "does the call end its workers, for example by using too much memory"
                        f" (mem=…)? `billow ps -a --name {self._name}` shows how they ended,"
                        f" `billow logs {self._name}` what they printed"
                    )
                )
                count = self._losses[at]
                text = f"the call lost {count} worker{'s' if count > 1 else ''}: {why}"
                self._end(at, None, CallLost(text, hint), 0.0, "")
            else:
                self.attempts[at] += 1

    def fail_rest(self, problem: Exception) -> None:
        for at in list(self.pending):
            self._end(at, None, problem, 0.0, "")

    def outcomes(self) -> List[Outcome]:
        return [each for each in self._outcomes if each is not None]


def new_id() -> bytes:
    return os.urandom(16)


def parsed(body: bytes) -> Dict[str, Any]:
    found = json.loads(body)
    return found if isinstance(found, dict) else {}
