"""`@billow.cls`: an object that stays loaded in its workers, so that a model is read once."""

from __future__ import annotations

import hashlib
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    List,
    Optional,
    Tuple,
    Type,
    TypeVar,
    overload,
)

from ._deploy import Settings, settings_of
from ._function import Callables, Function, signature_of
from ._load import marked
from ._pool import Pool, pickled

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _mark(wrapped: F, kind: str) -> F:
    wrapped.__billow__ = kind  # type: ignore[attr-defined]
    return wrapped


class _Marker:
    """A decorator of methods, with or without parentheses: `@enter` and `@enter()`."""

    def __init__(self, kind: str, doc: str) -> None:
        self._kind = kind
        self.__doc__ = doc

    @overload
    def __call__(self, wrapped: F) -> F:
        ...

    @overload
    def __call__(self) -> Callable[[F], F]:
        ...

    def __call__(self, wrapped: Optional[Any] = None) -> Any:
        if wrapped is None:
            return lambda given: _mark(given, self._kind)
        return _mark(wrapped, self._kind)


enter = _Marker("enter", "A method that runs once when a worker starts, before its first call.")
exit = _Marker("exit", "A method that runs when a worker ends.")
method = _Marker(
    "method", "A method that can be called from elsewhere: `Model().generate.remote(x)`."
)


def _methods(cls: type) -> Dict[str, Callable[..., Any]]:
    found: Dict[str, Callable[..., Any]] = {}
    for each in reversed(cls.__mro__):
        for name, value in vars(each).items():
            if getattr(value, "__billow__", None) == "method":
                found[name] = value
    return found


def _entered(cls: Type[T], given: Tuple[Any, ...], named: Dict[str, Any]) -> T:
    """An ordinary object in this process."""
    instance = cls(*given, **named)
    for name in marked(cls, "enter"):
        getattr(instance, name)()
    return instance


class Method(Callables[Any]):
    """A method of an object in workers. Called directly, it runs here, on an object of this
    process."""

    _instance: Optional["Instance[Any]"] = None

    def local(self, *args: Any, **named: Any) -> Any:
        """Calls it here, in this process."""
        if self._instance is None:
            raise TypeError(
                f"{self._function.__qualname__}: make an object of the class to call it"
            )
        return getattr(self._instance._local(), self._method)(*args, **named)

    __call__ = local


class Instance(Generic[T]):
    """An object in workers. Objects that are made with the same arguments share their workers."""

    def __init__(self, cls: Type[T], settings: Settings, given: Tuple[Any, ...], named: Any):
        self._cls = cls
        signature = signature_of(cls)
        if signature:
            try:
                signature.bind(*given, **named)
            except TypeError as problem:
                raise TypeError(f"{cls.__name__}: {problem}") from None
        methods = _methods(cls)
        suffix = ""
        if given or named:
            digest = hashlib.sha256(pickled((given, named), True)).hexdigest()[:6]
            suffix = f"-{digest}"
        batches = {getattr(each, "__billow_batch__", (0, 0.0)) for each in methods.values()}
        if len(batches) > 1:
            raise TypeError(
                f"{cls.__name__}: either all methods are batched in the same way, or none"
            )
        changed = Settings(**vars(settings))
        changed.kind = "cls"
        changed.batch = batches.pop() if batches else (0, 0.0)
        if settings.name:
            changed.name = settings.name + suffix
        self._pool = Pool((cls, given, named), changed, cls.__module__, cls.__qualname__ + suffix)
        self._methods = {name: Method(self._pool, name, each) for name, each in methods.items()}
        self._own_methods()

    def _own_methods(self) -> None:
        self._here: Optional[T] = None
        for each in self._methods.values():
            each._instance = self

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_here"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        vars(self).update(state)
        self._own_methods()

    def _local(self) -> T:
        """The object in this process, for `model.generate.local(x)`; entered at its first use."""
        if self._here is None:
            given, named = self._pool.target[1:]
            self._here = _entered(self._cls, given, named)
        return self._here

    def __getattr__(self, name: str) -> Callables[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._methods[name]
        except KeyError:
            if hasattr(self._cls, name) or name in getattr(self._cls, "__annotations__", {}):
                raise AttributeError(
                    f"{self._cls.__name__}.{name} exists only in workers: decorate a method with"
                    " @billow.method to call it there"
                ) from None
            raise AttributeError(
                f"{self._cls.__name__} has no method {name!r} with @billow.method; it has"
                f" {', '.join(sorted(self._methods)) or 'none'}"
            ) from None

    def __dir__(self) -> List[str]:
        return sorted(self._methods)

    # What is true of a function is true of the pool of an object.
    def _as_function(self) -> Function[Any]:
        return Function(self._pool, "", self._cls)

    @property
    def _endpoint(self) -> str:
        return self._pool.name


class RemoteClass(Generic[T]):
    """What `@billow.cls` makes of a class: calling it makes an object in workers."""

    def __init__(self, cls: Type[T], settings: Settings) -> None:
        self.cls = cls
        self.settings = settings
        self.__name__ = cls.__name__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__

    def __call__(self, *args: Any, **named: Any) -> Instance[T]:
        return Instance(self.cls, self.settings, args, named)

    def local(self, *args: Any, **named: Any) -> T:
        """An ordinary object in this process, entered."""
        return _entered(self.cls, args, named)


def cls(target: Optional[Type[Any]] = None, /, **options: Any) -> Any:
    """Makes a class whose objects live in workers; takes the options of `@billow.function`.

    Methods with `@billow.enter` run when a worker starts, those with `@billow.exit` when it ends,
    and those with `@billow.method` can be called with `remote`, `spawn` and `map`.
    """

    def decorate(wrapped: Type[Any]) -> RemoteClass[Any]:
        if not isinstance(wrapped, type):
            raise TypeError(f"@billow.cls: {wrapped!r} is not a class; use @billow.function")
        return RemoteClass(wrapped, settings_of(dict(options)))

    return decorate(target) if target is not None else decorate


def pool_of(instance: Instance[Any]) -> Function[Any]:
    """Deploy, delete, cost and logs of an object's workers: `billow.pool_of(model).cost`."""
    return instance._as_function()
