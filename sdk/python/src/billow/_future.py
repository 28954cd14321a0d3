"""The outcome of a call that is under way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any, Callable, Generator, Generic, List, Optional, TypeVar, cast

from ._caller import Outcome, Request
from ._elsewhere import FUTURE, missing
from ._errors import Cancelled

T = TypeVar("T")


class Future(Generic[T]):
    """What `spawn` returns. `result()` waits; `await future` does so for asyncio."""

    def __init__(self, request: Request, call_id: bytes, cost_of: Callable[[Outcome], float]):
        self._request = request
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._outcome: Optional[Outcome] = None
        self._callbacks: List[Callable[[Future[T]], object]] = []
        self._cost_of = cost_of
        self.id = call_id.hex()

    def __repr__(self) -> str:
        state = "running" if self._outcome is None else "done"
        return f"<billow.Future {self.id[:8]} {state}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise missing("a future", name, FUTURE, dir(type(self)))

    def _end(self, outcome: Outcome) -> None:
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
        self._done.set()
        for each in callbacks:
            each(self)

    def done(self) -> bool:
        return self._outcome is not None

    def cancelled(self) -> bool:
        return self._outcome is not None and isinstance(self._outcome.error, Cancelled)

    def cancel(self) -> bool:
        """Cancels the call: one that runs is interrupted. False if it has already ended."""
        if self._outcome is not None:
            return False
        self._request.cancel()
        self._end(Outcome(None, Cancelled("the call was cancelled"), 0.0, "", 0))
        return True

    def _wait(self, timeout: Optional[float]) -> Outcome:
        if not self._done.wait(timeout):
            raise TimeoutError(f"the call has not ended within {timeout} s")
        return cast(Outcome, self._outcome)

    def result(self, timeout: Optional[float] = None) -> T:
        outcome = self._wait(timeout)
        if outcome.error is not None:
            raise outcome.error
        return cast(T, outcome.value)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        return self._wait(timeout).error

    def add_done_callback(self, call: Callable[[Future[T]], object]) -> None:
        with self._lock:
            if self._outcome is None:
                self._callbacks.append(call)
                return
        call(self)

    @property
    def seconds(self) -> float:
        """How long the call ran in its worker."""
        return self._wait(None).seconds

    @property
    def attempts(self) -> int:
        return self._wait(None).attempts

    @property
    def cost(self) -> float:
        """What the call is charged, in USD: its seconds at the rate of its replica."""
        return self._cost_of(self._wait(None))

    def __await__(self) -> Generator[Any, None, T]:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[T] = loop.create_future()

        def settle() -> None:
            if waiting.cancelled():
                return
            error = self.exception()
            if error is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(self.result())

        self.add_done_callback(lambda _: loop.call_soon_threadsafe(settle))
        try:
            return (yield from waiting.__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise

    def as_concurrent(self) -> "concurrent.futures.Future[T]":
        """For `concurrent.futures.wait` and friends."""
        out: "concurrent.futures.Future[T]" = concurrent.futures.Future()

        def settle(_: Future[T]) -> None:
            error = self.exception()
            if error is not None:
                out.set_exception(error)
            else:
                out.set_result(self.result())

        self.add_done_callback(settle)
        return out
