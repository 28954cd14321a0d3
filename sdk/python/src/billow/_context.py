"""What a function can find out about the call that it serves."""

from __future__ import annotations

import contextvars
import os
from typing import NamedTuple, Optional


class CurrentCall(NamedTuple):
    """`id` stays the same when a call is sent again; `attempt` counts from 1."""

    id: str
    attempt: int


_call: "contextvars.ContextVar[Optional[CurrentCall]]" = contextvars.ContextVar(
    "billow_call", default=None
)


def current_call() -> Optional[CurrentCall]:
    """The call that this code serves; None outside a worker. Side effects that must not happen
    twice can be recorded under its id."""
    return _call.get()


def is_worker() -> bool:
    """Whether this code runs in a worker."""
    return "BILLOW_FUNCTION" in os.environ and "BILLOW_ENDPOINT" in os.environ
