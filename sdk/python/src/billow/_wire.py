"""Calls and results as octets, between the process that calls and the worker.

A request is a head and calls; an answer is frames, in the order in which calls end. Values are
pickles (protocol 5). Large buffers inside them (arrays, tensors, bytes of other libraries) follow
the pickle as they are: nothing is encoded again, and both sides receive them into place.

    request  "BWC1", count u32, then each call:
             id 16 octets, attempt u32, buffers u32, size u64, {size u64}, pickle, {buffer}
    frame    kind u8, index u32, buffers u32, seconds f64, size u64, {size u64}, pickle, {buffer}

If the highest bit of `buffers` is set, the buffers are in shared memory (`_lane`) and 32 octets
with the name of their file follow instead of them.
"""

from __future__ import annotations

import inspect
import pickle
import struct
import types
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _lane
from ._errors import RemoteError
from ._http import Body, Buffer
from ._pickle import dumps

MAGIC = b"BWC1"
COUNT = struct.Struct("<4sI")
CALL = struct.Struct("<16sIIQ")
FRAME = struct.Struct("<BIIdQ")
SIZE = struct.Struct("<Q")

IN_LANE = 1 << 31

RESULT, FAILURE, ITEM, ITEMS_END, ALIVE, OUTPUT = 1, 2, 3, 4, 5, 6

PICKLE_BYTES_MAX = 1 << 40
BUFFERS_MAX = 1 << 20
OUT_OF_BAND_BYTES_MIN = 64 << 10  # smaller buffers stay inside the pickle

_ATOMS = frozenset({int, float, str, bytes, bool, type(None), complex})
_LOOKED_AT_MAX = 64


def _is_plain(value: Any, left: int) -> int:
    """What is left of `left` objects to look at if all of them are plain; 0: it is not certain.

    Plain values need no pickling by value, and the pickler of the standard library is several
    times as fast.
    """
    kind = type(value)
    if kind in _ATOMS:
        return left - 1
    if kind is tuple or kind is list:
        for each in value:
            if left <= 0:
                return 0
            left = _is_plain(each, left)
        return left - 1
    if kind is dict:
        for name, each in value.items():
            if left <= 0:
                return 0
            left = _is_plain(each, _is_plain(name, left))
        return left - 1
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return left - 1 if not value.dtype.hasobject else 0
    return 0


class Packed(NamedTuple):
    """A pickled value: the pickle, and the buffers that follow it."""

    data: bytes
    buffers: Tuple[memoryview, ...] = ()

    @property
    def size(self) -> int:
        return len(self.data) + sum(each.nbytes for each in self.buffers)


def pack(value: Any) -> Packed:
    if type(value) in _ATOMS:
        return Packed(pickle.dumps(value, 5))
    buffers: List[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if view.nbytes < OUT_OF_BAND_BYTES_MIN:
            return True
        buffers.append(view)
        return False

    if _is_plain(value, _LOOKED_AT_MAX) > 0:
        data = pickle.dumps(value, 5, buffer_callback=keep)
    else:
        data = dumps(value, keep)
    return Packed(data, tuple(buffers))


def pack_call(args: Any) -> Packed:
    """The arguments of a call."""
    try:
        return pack(args)
    except Exception as problem:
        raise TypeError(
            f"an argument cannot be sent to a worker: {problem}. Create open files, locks and"
            " connections inside the function"
        ) from problem


def unpack(data: Buffer, buffers: Sequence[Buffer]) -> Any:
    return pickle.loads(data, buffers=buffers)


# ---- requests

Mapped = Union[bytearray, memoryview]


class Call(NamedTuple):
    id: bytes
    attempt: int
    data: bytes
    buffers: List[Mapped]


def _tail(packed: Packed, lane: Optional[List[str]]) -> Tuple[int, bytes, Tuple[memoryview, ...]]:
    """(count, what stands before the pickle, what follows it) of a value's buffers. `lane`: the
    other side shares this machine's memory; gets the names of files that were written."""
    buffers = packed.buffers
    if not buffers:
        return 0, b"", ()
    sizes = b"".join(SIZE.pack(each.nbytes) for each in buffers)
    if lane is not None and sum(each.nbytes for each in buffers) >= _lane.BYTES_MIN:
        name = _lane.put(buffers)
        if name:
            lane.append(name)
            return len(buffers) | IN_LANE, sizes + name.encode(), ()
    return len(buffers), sizes, buffers


def request_body(
    calls: "List[Tuple[bytes, int, Packed]]", lane: Optional[List[str]] = None
) -> List[Buffer]:
    """The pieces of a request; large buffers are not copied."""
    out: List[Buffer] = []
    small: List[bytes] = [COUNT.pack(MAGIC, len(calls))]
    for number, attempt, packed in calls:
        data = packed.data
        if not packed.buffers:
            small.append(CALL.pack(number, attempt, 0, len(data)))
            small.append(data)
            continue
        count, before, after = _tail(packed, lane)
        small += [CALL.pack(number, attempt, count, len(data)), before, data]
        if after:
            out.append(b"".join(small))
            out.extend(after)
            small = []
    if small:
        out.append(b"".join(small))
    return out


class Malformed(ValueError):
    """What arrived is not a request or answer of this protocol."""


def _take(body: Body, size: int) -> bytes:
    if size == 0:
        return b""
    if not body.may_have(size):
        raise Malformed("it is shorter than it says")
    data = body.read_exactly(size)
    if data is None:
        raise Malformed("it ended early")
    return data


def _take_value(body: Body, count: int, size: int) -> Tuple[bytes, List[Mapped]]:
    """The pickle and the buffers of a value."""
    if size > PICKLE_BYTES_MAX:
        raise Malformed("a value is too large")
    if not count:
        return _take(body, size), []
    buffers = count & ~IN_LANE
    if buffers > BUFFERS_MAX:
        raise Malformed("a value has too many buffers")
    sizes = [each for (each,) in SIZE.iter_unpack(_take(body, SIZE.size * buffers))]
    if sum(sizes) > PICKLE_BYTES_MAX:
        raise Malformed("a value is too large")
    name = _take(body, 32).decode("latin-1") if count & IN_LANE else ""
    data = _take(body, size)
    if name:
        return data, list(_lane.take(name, sizes))
    return data, [_take_buffer(body, each) for each in sizes]


def _take_buffer(body: Body, size: int) -> Mapped:
    if not body.may_have(size):
        raise Malformed("it is shorter than it says")
    buffer = bytearray(size)
    if size and not body.fill(memoryview(buffer)):
        raise Malformed("it ended early")
    return buffer


def read_calls(body: Body) -> List[Call]:
    """The calls of a request."""
    magic, count = COUNT.unpack(_take(body, COUNT.size))
    if magic != MAGIC:
        raise Malformed("the request does not contain calls")
    calls = []
    for _ in range(count):
        number, attempt, buffers, size = CALL.unpack(_take(body, CALL.size))
        calls.append(Call(number, attempt, *_take_value(body, buffers, size)))
    return calls


# ---- answers


class Frame(NamedTuple):
    kind: int
    at: int  # which call of the request
    seconds: float
    data: bytes
    buffers: List[Mapped]


def frame(
    kind: int, index: int, seconds: float, packed: Packed, lane: Optional[List[str]] = None
) -> Union[bytes, List[Buffer]]:
    if not packed.buffers:
        return FRAME.pack(kind, index, 0, seconds, len(packed.data)) + packed.data
    count, before, after = _tail(packed, lane)
    head = FRAME.pack(kind, index, count, seconds, len(packed.data)) + before + packed.data
    return [head, *after] if after else head


def read_frame(body: Body) -> Optional[Frame]:
    """The next frame; None at the end of the answer."""
    head = body.read_exactly(FRAME.size)
    if head is None:
        return None
    kind, index, buffers, seconds, size = FRAME.unpack(head)
    return Frame(kind, index, seconds, *_take_value(body, buffers, size))


# ---- failures


def pack_failure(problem: BaseException, text: str) -> Packed:
    """An exception with its traceback as text. One that cannot be pickled goes as its name."""
    name = f"{type(problem).__module__}.{type(problem).__qualname__}"
    try:
        said = str(problem)
    except BaseException:  # a foreign __str__ must not end the worker
        said = "its message cannot be shown"
    try:
        inner = dumps(problem)
        pickle.loads(inner)  # some exceptions can be pickled, but not be built again
    except BaseException:  # whatever a foreign __reduce__ raises
        inner = b""
    return Packed(pickle.dumps((name, said, text, inner), 5))


def load_failure(data: bytes) -> Tuple[Exception, str]:
    """The exception, of its own type where that can be built here, and the worker's traceback."""
    name, message, text, inner = pickle.loads(data)
    if inner:
        try:
            problem = pickle.loads(inner)
            if isinstance(problem, Exception):
                return problem, text
        except Exception:  # its type does not exist here
            pass
    return RemoteError(name, message, text), text


def is_generator(function: Any) -> bool:
    """Also of an `async def` that yields: its caller gets an iterator all the same."""
    code = getattr(function, "__code__", None)
    flags = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
    return isinstance(code, types.CodeType) and bool(code.co_flags & flags)
