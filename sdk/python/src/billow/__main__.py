"""`python -m billow deploy FILE [NAME …]`: deploys functions, classes and endpoints of a module.

The module is imported under its own name, so they are the endpoints that programs get which import
it. `python FILE` makes others: there the module is `__main__`, whose values exist only in that run.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import types
from typing import Any, Callable, Dict, List

from ._cls import RemoteClass, pool_of
from ._endpoint import WebEndpoint
from ._errors import Error
from ._function import Function

USAGE = "usage: python -m billow deploy FILE|MODULE [NAME …]"


def _import(given: str) -> types.ModuleType:
    """A module by its file or name, under the name that its project imports it by."""
    if not given.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(given)
    path = os.path.realpath(given)
    if not os.path.isfile(path):
        raise Error(f"{given} does not exist", f"looked in {os.getcwd()}")
    root, name = os.path.split(path[: -len(".py")])
    while os.path.exists(os.path.join(root, "__init__.py")):
        root, above = os.path.split(root)
        name = above if name == "__init__" else f"{above}.{name}"
    sys.path.insert(0, root)
    module = importlib.import_module(name)
    if os.path.realpath(module.__file__ or "") != path:
        raise Error(f"{given}: {name} is also the name of {module.__file__}", "rename the file")
    return module


def _deployable(value: Any) -> "Callable[[], str] | None":
    if isinstance(value, (Function, WebEndpoint)):
        return value.deploy
    if isinstance(value, RemoteClass):
        needed = [
            each
            for each in inspect.signature(value.cls).parameters.values()
            if each.default is each.empty
            and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        ]
        # An object with arguments exists when a program makes it.
        return None if needed else lambda: pool_of(value()).deploy()
    return None


def deploy(module: types.ModuleType, names: List[str]) -> Dict[str, str]:
    """name → address of what was deployed."""
    found = {
        name: make
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", module.__name__) == module.__name__
        for make in [_deployable(value)]
        if make is not None
    }
    for each in names:
        if each not in found:
            known = ", ".join(found) or "none"
            raise Error(f"{module.__name__} has no {each} to deploy", f"it has {known}")
    if not found:
        raise Error(f"{module.__name__} has no function, class or endpoint to deploy")
    return {name: found[name]() for name in names or found}


def main(words: List[str]) -> int:
    if len(words) < 2 or words[0] != "deploy":
        print(USAGE, file=sys.stderr)
        return 2
    try:
        for name, url in deploy(_import(words[1]), words[2:]).items():
            print(f"{name} {url}", flush=True)
    except Error as problem:
        print(f"billow: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
