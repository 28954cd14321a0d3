"""Many calls in few requests, with bounded memory however many inputs there are.

Inputs are pulled by the reading thread only as far as a window; results wait in that window until
they are read. Small calls are sent together: a request grows until it takes about TARGET_S, so a
long call travels alone and a no-op in company of hundreds.
"""

from __future__ import annotations

import collections
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
    TypeVar,
    cast,
)

from ._caller import Caller, Outcome, Request, new_id
from ._progress import Progress
from ._wire import Packed, pack_call

TARGET_S = 0.1
TOGETHER_MAX = 1024
TOGETHER_AT_MOST_ONCE = 16  # a lost worker loses the calls that travelled together
REQUEST_BYTES_MAX = 8 << 20  # of calls that travel together
FILL_S = 0.05  # a slow source does not hold back the inputs that it has given

R = TypeVar("R")
Args = Tuple[str, Tuple[Any, ...], Dict[str, Any]]


class _Batch:
    __slots__ = ("ids", "packed", "request", "outcomes", "took_s")

    def __init__(self) -> None:
        self.ids: List[bytes] = []
        self.packed: List[Packed] = []
        self.request = Request()
        self.outcomes: List[Outcome] = []
        self.took_s = 0.0


class Map:
    """One `map`: an iterator of outcomes."""

    def __init__(
        self,
        caller: Caller,
        inputs: Iterable[Args],
        width: int,
        ordered: bool,
        progress: Progress,
        together_max: int = TOGETHER_MAX,
    ) -> None:
        self._caller = caller
        self._inputs = iter(inputs)
        self._ordered = ordered
        self._progress = progress
        self._width = max(1, width)
        self._together = 1
        self._together_max = together_max
        self._exhausted = False
        self._unsent: Optional[Exception] = None  # why the input that was read last cannot be sent
        self._under_way: Deque[_Batch] = collections.deque()  # in the order of their inputs
        self._ended: "queue.SimpleQueue[_Batch]" = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(self._width, thread_name_prefix="billow-map")

    def _fill(self) -> Optional[_Batch]:
        """The next inputs that travel together; None when there are none."""
        if self._unsent is not None:
            problem, self._unsent = self._unsent, None
            return self._failed(problem)
        batch = _Batch()
        size, began = 0, time.monotonic()
        while len(batch.ids) < self._together and size < REQUEST_BYTES_MAX:
            try:
                given = next(self._inputs)
            except StopIteration:
                self._exhausted = True
                break
            try:
                packed = pack_call(given)
            except Exception as problem:
                if batch.ids:
                    self._unsent = problem  # after the outcomes of those before it
                    break
                return self._failed(problem)
            size += packed.size
            batch.ids.append(new_id())
            batch.packed.append(packed)
            if time.monotonic() - began > FILL_S:
                break
        return batch if batch.ids else None

    @staticmethod
    def _failed(problem: Exception) -> _Batch:
        """The outcome of an input that cannot be sent."""
        batch = _Batch()
        batch.ids.append(new_id())
        batch.outcomes.append(Outcome(None, problem, 0.0, "", 0))
        return batch

    def _send(self, batch: _Batch) -> None:
        began = time.monotonic()
        try:
            batch.outcomes = self._caller.run(batch.ids, batch.packed, batch.request)
        except BaseException as problem:  # a bug here must not leave the reader waiting
            batch.outcomes = [Outcome(None, problem, 0.0, "", 1)] * len(batch.ids)
        batch.took_s = time.monotonic() - began
        batch.packed = []
        self._ended.put(batch)

    def _adapt(self, batch: _Batch) -> None:
        """How many calls the next requests carry, by what this one's took in its worker."""
        ran = sum(each.seconds for each in batch.outcomes)
        each_s = max(ran / len(batch.ids), 1e-6)
        fit = max(1, min(self._together_max, int(TARGET_S / each_s)))
        self._together = min(fit, max(2 * self._together, 1))

    def _top_up(self) -> None:
        while len(self._under_way) < 2 * self._width:
            if self._exhausted and self._unsent is None:
                return
            batch = self._fill()
            if batch is None:
                return
            self._under_way.append(batch)
            if batch.outcomes:
                self._ended.put(batch)
            else:
                self._threads.submit(self._send, batch)

    def __iter__(self) -> Iterator[Outcome]:
        try:
            yield from self._ordered_outcomes() if self._ordered else self._any_outcomes()
        finally:
            for batch in self._under_way:
                batch.request.cancel()
            self._threads.shutdown(wait=False)
            self._progress.close()

    def cancel(self) -> None:
        """From another thread than the one that reads: ends the calls that are under way."""
        self._exhausted = True
        for batch in list(self._under_way):
            batch.request.cancel()

    def _deliver(self, batch: _Batch) -> List[Outcome]:
        failed = sum(1 for each in batch.outcomes if each.error is not None)
        self._progress.add(len(batch.outcomes), failed)
        return batch.outcomes

    def _any_outcomes(self) -> Iterator[Outcome]:
        self._top_up()
        while self._under_way:
            batch = self._ended.get()
            self._under_way.remove(batch)
            self._adapt(batch)
            self._top_up()
            yield from self._deliver(batch)

    def _ordered_outcomes(self) -> Iterator[Outcome]:
        self._top_up()
        ended = set()
        while self._under_way:
            first = self._under_way[0]
            while first not in ended:
                batch = self._ended.get()
                ended.add(batch)
                self._adapt(batch)
            ended.remove(first)
            self._under_way.popleft()
            self._top_up()
            yield from self._deliver(first)


def length_of(inputs: Any) -> Optional[int]:
    try:
        return len(inputs)
    except TypeError:
        return None


class Results(Iterator[R]):
    """What `map` returns: an iterator of results that knows what the calls so far cost."""

    def __init__(
        self,
        outcomes: Map,
        return_exceptions: bool,
        cost_of: Callable[[Outcome], float],
    ) -> None:
        self._map = outcomes
        self._outcomes = iter(outcomes)
        self._return_exceptions = return_exceptions
        self._cost_of = cost_of
        self._ran: Dict[str, Outcome] = {}  # by replica, with the seconds of all its calls
        self.seconds = 0.0

    def __iter__(self) -> Results[R]:
        return self

    def __next__(self) -> R:
        each = next(self._outcomes)
        self.seconds += each.seconds
        before = self._ran.get(each.job)
        total = each.seconds + (before.seconds if before else 0.0)
        self._ran[each.job] = Outcome(None, None, total, each.job, 1)
        if each.error is None:
            return cast(R, each.value)
        if self._return_exceptions:
            return cast(R, each.error)
        self.close()
        raise each.error

    def close(self) -> None:
        """Cancels the calls that are under way."""
        close = getattr(self._outcomes, "close", None)
        if close is not None:
            close()

    def cancel(self) -> None:
        """Cancels the calls that are under way, from any thread; readers get Cancelled."""
        self._map.cancel()

    @property
    def cost(self) -> float:
        """What the calls whose results were read are charged, in USD."""
        return sum(self._cost_of(each) for each in self._ran.values())
