"""Calls and results as octets, between the process that calls and the worker.

A request is a head and calls; an answer is frames, in the order in which calls end. Values are
pickles (protocol 5). Large buffers inside them (arrays, tensors, bytes of other libraries) follow
the pickle as they are: nothing is encoded again, and both sides receive them into place.

    request  "BWC1", count u32, then each call:
             id 16 octets, attempt u32, buffers u32, size u64, {size u64}, pickle, {buffer}
    frame    kind u8, index u32, buffers u32, seconds f64, size u64, {size u64}, pickle, {buffer}
"""

from __future__ import annotations

import pickle
import struct
import types
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from ._errors import RemoteError
from ._http import Body, Buffer
from ._pickle import dumps

MAGIC = b"BWC1"
COUNT = struct.Struct("<4sI")
CALL = struct.Struct("<16sIIQ")
FRAME = struct.Struct("<BIIdQ")
SIZE = struct.Struct("<Q")

RESULT, FAILURE, ITEM, ITEMS_END, ALIVE = 1, 2, 3, 4, 5

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


def unpack(data: Buffer, buffers: List[bytearray]) -> Any:
    return pickle.loads(data, buffers=buffers)


# ---- requests


class Call(NamedTuple):
    id: bytes
    attempt: int
    data: bytes
    buffers: List[bytearray]


def _numbers(buffers: Tuple[memoryview, ...]) -> bytes:
    return b"".join(SIZE.pack(each.nbytes) for each in buffers)


def request_body(calls: "List[Tuple[bytes, int, Packed]]") -> List[Buffer]:
    """The pieces of a request; large buffers are not copied."""
    out: List[Buffer] = []
    small: List[bytes] = [COUNT.pack(MAGIC, len(calls))]
    for number, attempt, packed in calls:
        data, buffers = packed
        small.append(CALL.pack(number, attempt, len(buffers), len(data)))
        if buffers:
            small.append(_numbers(buffers))
            small.append(data)
            out.append(b"".join(small))
            out.extend(buffers)
            small = []
        else:
            small.append(data)
    if small:
        out.append(b"".join(small))
    return out


class Malformed(ValueError):
    """What arrived is not a request or answer of this protocol."""


def _take(body: Body, size: int) -> bytes:
    if size == 0:
        return b""
    data = body.read_exactly(size)
    if data is None:
        raise Malformed("it ended early")
    return data


def _take_buffers(body: Body, sizes: bytes) -> List[bytearray]:
    out = []
    for (size,) in SIZE.iter_unpack(sizes):
        if size > PICKLE_BYTES_MAX:
            raise Malformed("a buffer is too large")
        buffer = bytearray(size)
        if size and not body.fill(memoryview(buffer)):
            raise Malformed("it ended early")
        out.append(buffer)
    return out


def read_calls(body: Body) -> List[Call]:
    """The calls of a request."""
    magic, count = COUNT.unpack(_take(body, COUNT.size))
    if magic != MAGIC:
        raise Malformed("the request does not contain calls")
    calls = []
    for _ in range(count):
        number, attempt, buffers, size = CALL.unpack(_take(body, CALL.size))
        if buffers > BUFFERS_MAX or size > PICKLE_BYTES_MAX:
            raise Malformed("a call is too large")
        sizes = _take(body, SIZE.size * buffers)
        data = _take(body, size)
        calls.append(Call(number, attempt, data, _take_buffers(body, sizes) if buffers else []))
    return calls


# ---- answers


class Frame(NamedTuple):
    kind: int
    at: int  # which call of the request
    seconds: float
    data: bytes
    buffers: List[bytearray]


def frame(kind: int, index: int, seconds: float, packed: Packed) -> Union[bytes, List[Buffer]]:
    data, buffers = packed
    head = FRAME.pack(kind, index, len(buffers), seconds, len(data))
    if not buffers:
        return head + data
    return [head + _numbers(buffers) + data, *buffers]


def read_frame(body: Body) -> Optional[Frame]:
    """The next frame; None at the end of the answer."""
    head = body.read_exactly(FRAME.size)
    if head is None:
        return None
    kind, index, buffers, seconds, size = FRAME.unpack(head)
    if buffers > BUFFERS_MAX or size > PICKLE_BYTES_MAX:
        raise Malformed("a frame is too large")
    sizes = _take(body, SIZE.size * buffers) if buffers else b""
    data = _take(body, size)
    return Frame(kind, index, seconds, data, _take_buffers(body, sizes) if buffers else [])


# ---- failures


def pack_failure(problem: BaseException, text: str) -> Packed:
    """An exception with its traceback as text. One that cannot be pickled goes as its name."""
    name = f"{type(problem).__module__}.{type(problem).__qualname__}"
    plain = (name, str(problem), text)
    try:
        inner = dumps(problem)
        pickle.loads(inner)  # some exceptions can be pickled, but not be built again
    except Exception:  # whatever a foreign __reduce__ raises
        inner = b""
    return Packed(pickle.dumps((*plain, inner), 5))


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
    code = getattr(function, "__code__", None)
    return isinstance(code, types.CodeType) and bool(code.co_flags & 0x20)
