"""Billow from Python: jobs, functions on GPUs, endpoints. See docs/python.md.

    import billow

    @billow.function(gpus=0.5)
    def square(x):
        return x * x

    print(square.remote(3))
    print(list(square.map(range(10))))
"""

from typing import TYPE_CHECKING

from ._client import AsyncClient, Client, connect
from ._cls import cls, enter, exit, method, pool_of
from ._context import CurrentCall, current_call, is_worker
from ._endpoint import WebEndpoint, asgi_app, endpoint, schedule, schedules, unschedule, web_server
from ._dataset import DatasetFailed
from ._errors import (
    ApiError,
    CallLost,
    CallTimeout,
    Cancelled,
    ConnectionFailed,
    DeployFailed,
    Error,
    JobFailed,
    NotFound,
    RemoteError,
    RemoteTraceback,
    VersionMismatch,
)
from ._function import Function, batched, function, gather
from ._future import Future
from ._group import Group, Role, group, role
from ._jobs import Grid, Job, Outputs, grid, run, submit
from ._map import Results
from ._output import show_output

__version__ = "0.1.0"


if not TYPE_CHECKING:  # for type checkers, unknown names are errors anyway

    def __getattr__(name):
        from ._elsewhere import PACKAGE, missing

        raise missing("billow", name, PACKAGE, __all__)


def load_ipython_extension(shell: object) -> None:
    """`%load_ext billow`"""
    from ._magic import load

    load(shell)


__all__ = [
    "ApiError",
    "AsyncClient",
    "CallLost",
    "CallTimeout",
    "Cancelled",
    "Client",
    "ConnectionFailed",
    "CurrentCall",
    "DatasetFailed",
    "DeployFailed",
    "Error",
    "Function",
    "Future",
    "Grid",
    "Group",
    "Job",
    "JobFailed",
    "NotFound",
    "Outputs",
    "RemoteError",
    "RemoteTraceback",
    "Results",
    "Role",
    "VersionMismatch",
    "WebEndpoint",
    "asgi_app",
    "batched",
    "cls",
    "connect",
    "current_call",
    "endpoint",
    "enter",
    "exit",
    "function",
    "gather",
    "grid",
    "group",
    "is_worker",
    "method",
    "pool_of",
    "role",
    "run",
    "schedule",
    "schedules",
    "show_output",
    "submit",
    "unschedule",
    "web_server",
]
