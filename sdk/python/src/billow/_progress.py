"""One line on a terminal: done, rate, time left."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Callable, Iterator, Optional

DRAW_EVERY_S = 0.1
BAR = 24
RATE_AFTER_S = 1.0

_drawn = False  # whether a line stands on the terminal that changes in place


def draw_line(text: str) -> None:
    global _drawn
    _drawn = True
    sys.stderr.write(f"\r\033[K{text}")
    sys.stderr.flush()


def clear_line() -> None:
    """Before something else is written to the terminal; the line is drawn again later."""
    global _drawn
    if _drawn:
        _drawn = False
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def leave_line() -> None:
    global _drawn
    _drawn = False
    sys.stderr.write("\n")


class Progress:
    def __init__(self, name: str, total: Optional[int], shown: Optional[bool]) -> None:
        self._name = name
        self._total = total
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._began = time.monotonic()
        self._drawn = 0.0
        self.done = 0
        self.failed = 0

    def add(self, count: int = 1, failed: int = 0) -> None:
        self.done += count
        self.failed += failed
        if self._shown and time.monotonic() - self._drawn > DRAW_EVERY_S:
            self._draw()

    def text(self) -> str:
        passed = max(time.monotonic() - self._began, 1e-6)
        rate = self.done / passed
        failed = f", {self.failed} failed" if self.failed else ""
        known = passed >= RATE_AFTER_S and rate > 0  # the first calls wait for their workers
        speed = f", {rate:,.0f}/s" if rate >= 10 else f", {rate:.2g}/s"
        if self._total is None:
            return f"{self._name}: {self.done:,} done{failed}{speed if known else ''}"
        full = BAR * self.done // max(self._total, 1)
        bar = "█" * full + "░" * (BAR - full)
        text = f"{self._name}: {bar} {self.done:,} of {self._total:,}{failed}"
        if not known:
            return text
        return f"{text}{speed}, {(self._total - self.done) / rate:,.0f} s left"

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        draw_line(self.text())

    def close(self) -> None:
        if self._shown:
            self._draw()
            leave_line()


@contextlib.contextmanager
def shown_on(wanted: Optional[bool]) -> Iterator[Callable[[str], None]]:
    """A line on stderr that changes in place; nothing without a terminal, unless it is wanted."""
    shown = sys.stderr.isatty() if wanted is None else wanted

    def show(text: str) -> None:
        if shown:
            draw_line(text)

    try:
        yield show
    finally:
        if shown:
            leave_line()
