"""How a worker runs calls: in its main thread (default), in threads, on an event loop, or many in
one (`batched`).

The main thread is the default because signals, CUDA contexts and most event loops expect it, and
because only there a running call can be interrupted when its caller cancels it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Awaitable, Callable, Dict, Iterator, List, Optional, Protocol, Tuple

from ._context import CurrentCall, _call
from ._errors import CallTimeout
from ._output import Tell, _tell
from ._wire import (
    FAILURE,
    ITEM,
    ITEMS_END,
    RESULT,
    Call,
    Packed,
    is_generator,
    pack,
    pack_failure,
    unpack,
)

Resolve = Callable[[str], Callable[..., Any]]


class Reply(Protocol):
    """Where the outcomes of a request go."""

    cancelled: bool
    tell: Optional[Tell]  # what the calls print, if the caller wants it

    def put(self, kind: int, index: int, seconds: float, packed: Packed) -> None:
        ...

    def gone(self) -> None:
        ...


class CallCancelled(BaseException):
    """Raised inside a call whose caller has gone. No Exception: user code must not swallow it."""


class Executor(Protocol):
    def submit(self, calls: List[Call], reply: Reply) -> None:
        ...

    def cancel(self, reply: Reply) -> None:
        ...

    def serve(self) -> None:
        """Runs calls in the main thread until the process is told to end."""


def _trimmed(problem: BaseException) -> str:
    """The traceback without the frames of the worker itself."""
    inner = problem.__traceback__
    while inner is not None and inner.tb_frame.f_globals.get("__name__") in (
        __name__,
        "billow._execute",
    ):
        inner = inner.tb_next
    return "".join(traceback.format_exception(type(problem), problem, inner))


def answer(reply: Reply, at: int, began: float, value: Any) -> None:
    """Packs a result; one that cannot be packed is a failure of its call."""
    seconds = time.perf_counter() - began
    try:
        packed = pack(value)
    except Exception as problem:
        refuse(reply, at, began, TypeError(f"the result cannot be pickled: {problem}"))
        return
    reply.put(RESULT, at, seconds, packed)


def refuse(reply: Reply, at: int, began: float, problem: BaseException) -> None:
    seconds = time.perf_counter() - began
    reply.put(FAILURE, at, seconds, pack_failure(problem, _trimmed(problem)))


def arguments(call: Call) -> Tuple[str, Tuple[Any, ...], Dict[str, Any]]:
    """(method, positional, named)."""
    value = unpack(call.data, call.buffers)
    if type(value) is tuple and len(value) == 3 and type(value[2]) is dict:
        return value[0], value[1], value[2]
    raise ValueError("a call is a method, positional and named arguments")


def run_one(resolve: Resolve, call: Call, at: int, reply: Reply, guard: "Guard") -> None:
    began = time.perf_counter()
    token = _call.set(CurrentCall(call.id.hex(), call.attempt))
    telling = _tell.set(reply.tell)
    try:
        with guard:
            method, given, named = arguments(call)
            function = resolve(method)
            value = function(*given, **named)
            if inspect.isgenerator(value) and not is_generator(function):
                raise TypeError(RETURNS_GENERATOR)
            if inspect.isgenerator(value):
                for item in value:
                    packed = pack(item)
                    with guard.outside():  # half a frame would be worse than a late interruption
                        reply.put(ITEM, at, 0.0, packed)
                value = _ITEMS_ENDED
            elif inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
    except CallCancelled:
        reply.gone()
    except BaseException as problem:  # SystemExit of user code ends the call, not the worker
        refuse(reply, at, began, problem)
    else:
        if value is _ITEMS_ENDED:
            reply.put(ITEMS_END, at, time.perf_counter() - began, Packed(b""))
        else:
            answer(reply, at, began, value)
    finally:
        _tell.reset(telling)
        _call.reset(token)


_ITEMS_ENDED = object()
RETURNS_GENERATOR = (
    "the function returned a generator, which cannot be pickled: return list(…), or yield from it."
    " If a decorator returns it, write the decorator below @billow.function as a generator too"
)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


class Guard:
    """Around user code: its time limit. In the main thread also cancellation."""

    def __enter__(self) -> None:
        ...

    def __exit__(self, *_: object) -> None:
        ...

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Inside of it nothing is interrupted; what was due is raised at its end."""
        yield


class MainGuard(Guard):
    """Lets signals interrupt user code, and only user code."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.inside = False
        self._late = False  # its time ended while it was outside
        self.reply: Optional[Reply] = None
        signal.signal(signal.SIGUSR1, self._on_cancel)
        if timeout:
            signal.signal(signal.SIGALRM, self._on_alarm)

    def __enter__(self) -> None:
        self.inside = True
        self._late = False
        if self._timeout:
            signal.setitimer(signal.ITIMER_REAL, self._timeout)
        self._check()

    def _check(self) -> None:
        if self.reply is not None and self.reply.cancelled:
            self.inside = False
            raise CallCancelled

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        self.inside = False
        yield
        self.inside = True
        self._check()
        if self._late:
            self._on_alarm()

    def __exit__(self, *_: object) -> None:
        self.inside = False
        if self._timeout:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_cancel(self, *_: object) -> None:
        if self.inside and self.reply is not None and self.reply.cancelled:
            self.inside = False
            raise CallCancelled

    def _on_alarm(self, *_: object) -> None:
        if self.inside:
            raise CallTimeout(f"the call ran longer than {self._timeout:g} s")
        self._late = True


class InMain:
    """One call after the other, in the main thread."""

    def __init__(self, resolve: Resolve, timeout: float) -> None:
        self._resolve = resolve
        self._guard = MainGuard(timeout)
        self._main = threading.get_ident()
        self._waiting: "queue.SimpleQueue[Tuple[List[Call], Reply]]" = queue.SimpleQueue()

    def submit(self, calls: List[Call], reply: Reply) -> None:
        self._waiting.put((calls, reply))

    def cancel(self, reply: Reply) -> None:
        if self._guard.reply is reply:
            signal.pthread_kill(self._main, signal.SIGUSR1)

    def serve(self) -> None:
        take, guard, resolve = self._waiting.get, self._guard, self._resolve
        while True:
            calls, reply = take()
            guard.reply = reply
            for at, call in enumerate(calls):
                if reply.cancelled:
                    reply.gone()
                    break
                run_one(resolve, call, at, reply, guard)
            guard.reply = None


class _FirstOutcome:
    """The reply of one call of which only the first outcome counts."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.tell = reply.tell
        self._lock = threading.Lock()
        self.ended = False
        self.cancelled = False

    def put(self, kind: int, index: int, seconds: float, packed: Packed) -> None:
        with self._lock:
            if self.ended:
                return
            self.ended = kind != ITEM
            self._reply.put(kind, index, seconds, packed)

    def gone(self) -> None:
        self._reply.gone()


class InThreads:
    """Up to `concurrency` calls at once, each in a thread. A running call cannot be interrupted:
    after its time limit its caller is answered, and the thread is occupied until it returns."""

    def __init__(self, resolve: Resolve, concurrency: int, timeout: float) -> None:
        self._resolve = resolve
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="call")
        self._end = threading.Event()

    def submit(self, calls: List[Call], reply: Reply) -> None:
        for at, call in enumerate(calls):
            self._threads.submit(self._run, call, at, reply)

    def _run(self, call: Call, at: int, reply: Reply) -> None:
        if reply.cancelled:
            reply.gone()
            return
        if not self._timeout:
            run_one(self._resolve, call, at, reply, Guard())
            return
        first, began = _FirstOutcome(reply), time.perf_counter()
        late = CallTimeout(f"the call ran longer than {self._timeout:g} s")
        timer = threading.Timer(self._timeout, refuse, (first, at, began, late))
        timer.daemon = True
        timer.start()
        try:
            run_one(self._resolve, call, at, first, Guard())
        finally:
            timer.cancel()

    def cancel(self, reply: Reply) -> None:
        pass  # calls that have not begun are skipped

    def serve(self) -> None:
        while not self._end.wait(3600):
            pass


class OnLoop:
    """`async def`: up to `concurrency` calls at once on one event loop in the main thread."""

    def __init__(self, resolve: Resolve, concurrency: int, timeout: float) -> None:
        self._resolve = resolve
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(concurrency)
        self._tasks: Dict[int, List["asyncio.Task[None]"]] = {}

    def submit(self, calls: List[Call], reply: Reply) -> None:
        self._loop.call_soon_threadsafe(self._start, calls, reply)

    def _start(self, calls: List[Call], reply: Reply) -> None:
        tasks = [
            self._loop.create_task(self._run(call, at, reply)) for at, call in enumerate(calls)
        ]
        self._tasks[id(reply)] = tasks

        async def forget() -> None:
            await asyncio.wait(tasks)
            self._tasks.pop(id(reply), None)

        self._loop.create_task(forget())

    def cancel(self, reply: Reply) -> None:
        def stop() -> None:
            for task in self._tasks.get(id(reply), []):
                task.cancel()

        self._loop.call_soon_threadsafe(stop)

    async def _run(self, call: Call, at: int, reply: Reply) -> None:
        async with self._slots:
            began = time.perf_counter()
            _call.set(CurrentCall(call.id.hex(), call.attempt))
            _tell.set(reply.tell)
            try:
                method, given, named = arguments(call)
                function = self._resolve(method)
                value = function(*given, **named)
                if inspect.isasyncgen(value) and not is_generator(function):
                    raise TypeError(RETURNS_GENERATOR)
                if inspect.isasyncgen(value):
                    async for item in value:
                        reply.put(ITEM, at, 0.0, pack(item))
                    reply.put(ITEMS_END, at, time.perf_counter() - began, Packed(b""))
                    return
                if inspect.isawaitable(value):
                    value = await asyncio.wait_for(value, self._timeout or None)
            except asyncio.CancelledError:
                reply.gone()
            except asyncio.TimeoutError:
                late = CallTimeout(f"the call ran longer than {self._timeout:g} s")
                refuse(reply, at, began, late)
            except BaseException as problem:
                refuse(reply, at, began, problem)
            else:
                answer(reply, at, began, value)

    def serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


class Together:
    """`batched`: calls that arrive within `wait_s` run as one, with a list for each argument."""

    def __init__(self, resolve: Resolve, size_max: int, wait_s: float, timeout: float) -> None:
        self._resolve = resolve
        self._size_max = size_max
        self._wait_s = wait_s
        self._guard = MainGuard(timeout)
        self._waiting: "queue.SimpleQueue[Tuple[Call, int, Reply]]" = queue.SimpleQueue()

    def submit(self, calls: List[Call], reply: Reply) -> None:
        for at, call in enumerate(calls):
            self._waiting.put((call, at, reply))

    def cancel(self, reply: Reply) -> None:
        pass  # the others in its batch go on

    def _collect(self) -> List[Tuple[Call, int, Reply]]:
        batch = [self._waiting.get()]
        deadline = time.monotonic() + self._wait_s
        while len(batch) < self._size_max:
            try:
                left = deadline - time.monotonic()
                batch.append(
                    self._waiting.get(timeout=left) if left > 0 else self._waiting.get_nowait()
                )
            except queue.Empty:
                break
        return batch

    def serve(self) -> None:
        while True:
            self._run([each for each in self._collect() if not each[2].cancelled])

    def _run(self, batch: List[Tuple[Call, int, Reply]]) -> None:
        began = time.perf_counter()
        groups: Dict[Any, List[Tuple[Any, int, Reply]]] = {}
        for call, at, reply in batch:
            try:
                method, given, named = arguments(call)
            except Exception as problem:
                refuse(reply, at, began, problem)
                continue
            shape = (method, len(given), tuple(sorted(named)))
            groups.setdefault(shape, []).append(((given, named), at, reply))
        for (method, count, names), members in groups.items():
            columns = [[m[0][0][i] for m in members] for i in range(count)]
            named_columns = {name: [m[0][1][name] for m in members] for name in names}
            _tell.set(next((m[2].tell for m in members if m[2].tell), None))
            try:
                with self._guard:
                    values = self._resolve(method)(*columns, **named_columns)
                    if inspect.isawaitable(values):
                        values = asyncio.run(_awaited(values))
                values = list(values)
                if len(values) != len(members):
                    raise ValueError(
                        f"a batched function got {len(members)} inputs and returned {len(values)}"
                        " results; it must return one for each"
                    )
            except BaseException as problem:
                for _, at, reply in members:
                    refuse(reply, at, began, problem)
                continue
            for value, (_, at, reply) in zip(values, members):
                answer(reply, at, began, value)
