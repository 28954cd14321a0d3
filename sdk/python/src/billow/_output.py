"""What functions print, shown where they are called.

A worker writes it to its log in any case. If the caller wants it, it also travels back with the
answer: while the call runs, and before its result.
"""

from __future__ import annotations

import contextvars
import os
import sys
from typing import Any, Callable, Optional

from . import _progress

VARIABLE = "BILLOW_SHOW_OUTPUT"
OUT, ERR = 1, 2

Tell = Callable[[int, str], None]
_tell: "contextvars.ContextVar[Optional[Tell]]" = contextvars.ContextVar(
    "billow_tell", default=None
)
_chosen: Optional[bool] = None


def show_output(wanted: Optional[bool] = True) -> None:
    """Whether what functions print in their workers is shown here. None is the default: on a
    terminal and in a notebook, or as the variable BILLOW_SHOW_OUTPUT says (0 or 1)."""
    global _chosen
    _chosen = wanted


def wanted() -> bool:
    if _tell.get() is not None:
        return True  # a nested call: its caller wants it
    if _chosen is not None:
        return _chosen
    said = os.environ.get(VARIABLE, "")
    if said:
        return said.lower() not in ("0", "no", "off", "false")
    return sys.stdout is not None and (sys.stdout.isatty() or _in_notebook())


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show(data: bytes) -> None:
    """What a frame of a worker contains: the stream and the text."""
    stream = sys.stderr if data[:1] == b"2" else sys.stdout
    if stream is None:
        return
    _progress.clear_line()
    stream.write(data[1:].decode("utf-8", "replace"))
    stream.flush()


def note(text: str) -> None:
    """A line of the package itself, for the person."""
    if sys.stderr is not None:
        _progress.clear_line()
        print(f"billow: {text}", file=sys.stderr, flush=True)


class Tee:
    """A worker's stdout or stderr: its log, and the caller of the call that writes."""

    def __init__(self, inner: Any, stream: int) -> None:
        self._inner = inner
        self._stream = stream

    def write(self, text: str) -> int:
        count = self._inner.write(text)
        tell = _tell.get()
        if tell is not None:
            tell(self._stream, text)
        return int(count)

    def writelines(self, lines: Any) -> None:
        for each in lines:
            self.write(each)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def tee() -> None:
    """In a worker, before user code is loaded."""
    out: Any = Tee(sys.stdout, OUT)
    err: Any = Tee(sys.stderr, ERR)
    sys.stdout, sys.stderr = out, err
