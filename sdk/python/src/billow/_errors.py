"""Errors of the package. Each says what happened and, as `hint`, what to do."""

from __future__ import annotations

from typing import Any, Optional


class Error(Exception):
    """Base class of the package's errors."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConnectionFailed(Error):
    """No head or gateway answered."""


class ApiError(Error):
    """The head refused a request: `status` is its HTTP status, `code` Billow's name for it."""

    def __init__(self, status: int, message: str, hint: str = "", code: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.code = code

    def __reduce__(self) -> Any:
        return (type(self), (self.status, self.message, self.hint, self.code))


class NotFound(ApiError):
    """The resource does not exist, or you may not see it."""


class JobFailed(Error):
    """A job that was waited for did not succeed. `job` is the job, `exit_code` its exit code."""

    def __init__(self, message: str, job: Any, exit_code: Optional[int], hint: str = "") -> None:
        super().__init__(message, hint)
        self.job = job
        self.exit_code = exit_code

    def __reduce__(self) -> Any:
        # A job belongs to a connection; elsewhere its number is what is left of it.
        return (
            type(self),
            (self.message, getattr(self.job, "id", self.job), self.exit_code, self.hint),
        )


class DeployFailed(Error):
    """A function or endpoint could not be deployed."""


class VersionMismatch(DeployFailed):
    """The worker has another Python or other packages than this process."""


class CallLost(Error):
    """The worker was lost during a call that must not run twice (`retries=0`), or too often."""


class CallTimeout(Error, TimeoutError):
    """A call ran longer than the function's `timeout`."""


class Cancelled(Error):
    """The call was cancelled."""


class RemoteError(Error):
    """A remote exception whose type cannot be rebuilt here. `type_name` is its type."""

    def __init__(self, type_name: str, message: str, traceback: str) -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.remote_message = message
        self.traceback = traceback

    def __reduce__(self) -> Any:
        return (type(self), (self.type_name, self.remote_message, self.traceback))


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in a worker: prints the traceback from there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text
