"""Pickling by value, with names for classes that every process agrees on.

cloudpickle sends classes of __main__ by value and recognises them by a random id of the process
that sent them first. A worker outlives that process: the next run of the same script must find the
same class behind its instances, so the id is made from the class's name and code.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import types
from typing import Any, Callable, List, Optional

from ._errors import Error

# Jobs, `billow map` and `billow sdk install` pickle nothing: they work without cloudpickle.
SOURCE: Any = None
_inner: Any = None
_base: Any = pickle.Pickler
try:
    import cloudpickle

    SOURCE, _base = cloudpickle, cloudpickle.CloudPickler
    _inner = cloudpickle.cloudpickle
except ImportError:
    pass

_by_class: Any = getattr(_inner, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {})
_by_id: Any = getattr(_inner, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})


def _code(value: Any) -> List[bytes]:
    """What a class's methods do, without where they stand in their file."""
    value = getattr(value, "__func__", value)
    if isinstance(value, property):
        return [each for part in (value.fget, value.fset) if part for each in _code(part)]
    code = getattr(value, "__code__", None)
    if not isinstance(code, types.CodeType):
        return [repr(value).encode()] if isinstance(value, (int, str, float, bytes)) else []
    out = [code.co_code, " ".join(code.co_names).encode()]
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            out.append(each.co_code)
        elif isinstance(each, (int, str, float, bytes, tuple)):
            out.append(repr(each).encode())
    return out


def _name(cls: type) -> None:
    """Gives a class that travels by value its id, if it has none."""
    if cls in _by_class:
        return
    total = hashlib.sha256(f"{cls.__module__}\n{cls.__qualname__}".encode())
    for name in sorted(vars(cls)):
        if name in ("__module__", "__doc__", "__dict__", "__weakref__", "__qualname__"):
            continue
        total.update(name.encode())
        for part in _code(vars(cls)[name]):
            total.update(part)
    number = total.hexdigest()[:32]
    _by_class[cls] = number
    _by_id[number] = cls  # a cell that is run again: the newest is meant


class Pickler(_base):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and not _inner._should_pickle_by_reference(obj):
            _name(obj)
        # Where pickling itself is Python (PyPy), cloudpickle has a table of types instead.
        inherited = getattr(super(), "reducer_override", None)
        return inherited(obj) if inherited else NotImplemented


def dumps(value: Any, keep: Optional[Callable[[Any], bool]] = None) -> bytes:
    """`keep`: takes buffers that need not be in the pickle, as `buffer_callback` of pickle."""
    if SOURCE is None:
        raise Error("functions need cloudpickle, which is not installed", "pip install cloudpickle")
    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=keep).dump(value)
    return file.getvalue()


def without_random_ids(pickled: bytes) -> bytes:
    """For a digest: ids that another cloudpickle gave are different in every process."""
    for number in list(_by_id):
        pickled = pickled.replace(number.encode(), b"0" * len(number))
    return pickled
