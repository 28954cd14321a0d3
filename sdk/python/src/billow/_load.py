"""Loads a function, class or web endpoint in its worker, and chooses how its calls run."""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, List

from . import _execute as execute

if TYPE_CHECKING:
    from ._worker import Worker

_at_exit: List[Callable[[], Any]] = []


def marked(cls: type, mark: str) -> List[str]:
    """The methods that a decorator of `_cls` has marked, those of base classes first."""
    names: List[str] = []
    for each in reversed(cls.__mro__):
        for name, value in vars(each).items():
            if getattr(value, "__billow__", None) == mark and name not in names:
                names.append(name)
    return names


def _instance(loaded: Any) -> "Dict[str, Callable[..., Any]]":
    """Builds the object of a class, enters it, and returns its methods."""
    cls, given, named = loaded
    instance = cls(*given, **named)
    for name in marked(cls, "enter"):
        getattr(instance, name)()
    for name in marked(cls, "exit"):
        _at_exit.append(getattr(instance, name))
    methods = {name: getattr(instance, name) for name in marked(cls, "method")}
    if not methods and callable(instance):
        methods["__call__"] = instance
    return methods


def load_function(worker: "Worker") -> None:
    with open("function.pkl", "rb") as file:
        code = file.read()
    # Code that serves files of its directory must not serve the secret.
    for name in ("function.json", "function.pkl"):
        os.unlink(name)
    loaded = pickle.loads(code)
    about = worker.about
    kind = about["kind"]
    if kind in ("endpoint", "asgi", "web_server"):
        from ._web import load_web

        load_web(worker, kind, loaded)
        return
    methods = _instance(loaded) if kind == "cls" else {"": loaded}

    def resolve(name: str) -> Callable[..., Any]:
        try:
            return methods[name]
        except KeyError:
            raise AttributeError(f"the class has no method {name!r} with @billow.method") from None

    concurrency, timeout = int(about["concurrency"]), float(about["timeout"])
    size_max, wait_s = about["batch"]
    asynchronous = any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in methods.values()
    )
    if size_max:
        worker.executor = execute.Together(resolve, int(size_max), float(wait_s), timeout)
    elif asynchronous:
        worker.executor = execute.OnLoop(resolve, concurrency, timeout)
    elif concurrency > 1:
        worker.executor = execute.InThreads(resolve, concurrency, timeout)
    else:
        worker.executor = execute.InMain(resolve, timeout)


def unload() -> None:
    """`@billow.exit`: the last first."""
    for each in reversed(_at_exit):
        try:
            each()
        except Exception:
            traceback.print_exc(file=sys.stderr)
