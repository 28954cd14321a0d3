"""`%load_ext billow`, then `%%billow --gpus 1`: a cell of a notebook runs in a worker.

The variables that the cell reads go with it, those that it assigns or changes come back, and what
it prints appears while it runs. An interrupt of the cell interrupts it there.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import hashlib
import io
import pickle
import queue
import shlex
import sys
import threading
import traceback
import types
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ._function import Function, function
from ._pickle import dumps

Event = Tuple[str, Any]

_functions: Dict[str, Function[Any]] = {}


class Names(ast.NodeVisitor):
    """What a cell reads and assigns at its top level."""

    def __init__(self) -> None:
        self.read: Set[str] = set()
        self.assigned: Set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.read.add(node.id)
        else:
            self.assigned.add(node.id)

    def _defined(self, node: Any) -> None:
        self.assigned.add(node.name)
        inner = Names()
        inner.generic_visit(node)
        self.read |= inner.read

    visit_FunctionDef = _defined
    visit_AsyncFunctionDef = _defined
    visit_ClassDef = _defined

    def visit_Lambda(self, node: ast.Lambda) -> None:
        inner = Names()
        inner.generic_visit(node)
        self.read |= inner.read

    def _imported(self, node: Any) -> None:
        for each in node.names:
            self.assigned.add((each.asname or each.name).partition(".")[0])

    visit_Import = _imported
    visit_ImportFrom = _imported


# ---- in the worker


class _Told(io.TextIOBase):
    def __init__(self, events: "queue.Queue[Event]", kind: str) -> None:
        self._events = events
        self._kind = kind

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._events.put((self._kind, text))
        return len(text)


def _execute(source: str, space: Dict[str, Any], events: "queue.Queue[Event]") -> None:
    try:
        tree = ast.parse(source, "<cell>")
        last: Optional[ast.Expression] = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        exec(compile(tree, "<cell>", "exec"), space)
        value = eval(compile(last, "<cell>", "eval"), space) if last is not None else None
    except BaseException as problem:
        inner = problem.__traceback__.tb_next if problem.__traceback__ else None
        text = "".join(traceback.format_exception(type(problem), problem, inner))
        events.put(("raised", (problem if isinstance(problem, Exception) else None, text)))
        return
    events.put(("value", value))


def _content(value: Any) -> bytes:
    """A digest of a value that can be changed in place; empty for others."""
    if isinstance(value, (int, float, complex, str, bytes, bool, type(None), type)):
        return b""
    if isinstance(value, (types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
        return b""
    try:
        return hashlib.sha256(dumps(value)).digest()
    except Exception:  # came by a way of its own, such as a reference
        return b""


def _changed(space: Dict[str, Any], name: str, before: Dict[str, bytes]) -> bool:
    return bool(before[name]) and name in space and _content(space[name]) != before[name]


def run_cell(source: str, variables: bytes, wanted: List[str]) -> Iterator[Event]:
    """Runs a cell and yields what it prints, then what it assigned or changed."""
    given = pickle.loads(variables)
    space: Dict[str, Any] = {"__name__": "__main__", **given}
    before = {name: _content(value) for name, value in given.items()}
    events: "queue.Queue[Event]" = queue.Queue()
    out, err = sys.stdout, sys.stderr
    told: Any = _Told(events, "out"), _Told(events, "err")
    sys.stdout, sys.stderr = told
    thread = threading.Thread(target=_execute, args=(source, space, events), daemon=True)
    thread.start()
    try:
        while True:
            kind, value = events.get()
            if kind == "raised":
                yield kind, value
                return
            if kind == "value":
                break
            yield kind, value
    finally:
        sys.stdout, sys.stderr = out, err
        if thread.is_alive():  # the caller has interrupted it
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
            )
    kept: Dict[str, bytes] = {}
    left: List[str] = []
    changed = [name for name in before if name not in wanted and _changed(space, name, before)]
    for name in [*wanted, *changed]:
        if name in space:
            try:
                kept[name] = dumps(space[name])
            except Exception:
                left.append(name)
    yield "variables", (kept, left)
    try:
        shown = dumps(value)
    except Exception:
        shown = dumps(None)
        yield "out", repr(value) + "\n"
    yield "value", shown


# ---- in the notebook


def _options(line: str) -> Dict[str, Any]:
    parser = argparse.ArgumentParser("%%billow", add_help=False)
    parser.add_argument("--gpus", type=float)
    for name in ("gpu-type", "gpu-mem", "mem", "image", "env", "project", "python", "timeout"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--cpus", type=float)
    parser.add_argument("--secret", action="append", dest="secrets")
    parser.add_argument("--volume", action="append", dest="volumes")
    parser.add_argument("--spot", action="store_true", default=None)
    given = vars(parser.parse_args(shlex.split(line)))
    return {name: value for name, value in given.items() if value is not None}


def _function(options: Dict[str, Any]) -> Function[Any]:
    text = repr(sorted(options.items()))
    if text not in _functions:
        from ._client import default_client

        seed = f"{default_client().user}\n{text}"
        name = "cell-" + hashlib.sha256(seed.encode()).hexdigest()[:10]
        make = function(name=name, max=4, **options)
        _functions[text] = make(run_cell)
    return _functions[text]


class CellFailed(Exception):
    """The cell raised an exception that cannot be rebuilt here; its traceback was printed."""


def billow_cell(shell: Any, line: str, cell: str) -> Any:
    """Runs a cell in a worker; the options are those of `billow run`."""
    source = shell.transform_cell(cell) if hasattr(shell, "transform_cell") else cell
    names = Names()
    names.visit(ast.parse(source, "<cell>"))
    space: Dict[str, Any] = shell.user_ns
    given = {name: space[name] for name in sorted(names.read) if name in space}
    if "get_ipython" in names.read:
        raise ValueError(
            "! and % commands run in the notebook, not in a worker: use subprocess.run(…) in a"
            " %%billow cell"
        )
    target = _function(_options(line))
    events = target.remote(source, dumps(given), sorted(names.assigned))
    value: Any = None
    with contextlib.closing(events):
        for kind, content in events:
            if kind == "out":
                print(content, end="", flush=True)
            elif kind == "err":
                print(content, end="", file=sys.stderr, flush=True)
            elif kind == "raised":
                problem, text = content
                print(text, end="", file=sys.stderr)
                raise problem or CellFailed(text.strip().splitlines()[-1])
            elif kind == "variables":
                kept, left = content
                space.update({name: pickle.loads(data) for name, data in kept.items()})
                if left:
                    print(
                        f"billow: {', '.join(left)} cannot be pickled and stayed in the worker",
                        file=sys.stderr,
                    )
            elif kind == "value":
                value = pickle.loads(content)
    return value


def load(shell: Any) -> None:
    def magic(line: str, cell: str) -> Any:
        return billow_cell(shell, line, cell)

    magic.__doc__ = billow_cell.__doc__
    shell.register_magic_function(magic, "cell", "billow")
