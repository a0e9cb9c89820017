"""Defines this worker's errors. The `kind` of a `GpuWorkerError` becomes the type of Temporal's application error."""

from __future__ import annotations

from typing import Any, NoReturn


class GpuWorkerError(Exception):
    """Its message says what is wrong and what to do. `retryable` is False when only a person or another input helps."""

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


class NotFiniteError(Exception):
    """Raised when a value of a step is NaN or infinite. The step makes no update, and the message names the value."""


class Cancelled(Exception):
    """Raised between units of work once the activity was cancelled."""


class Request(dict[str, Any]):
    """A request of an activity. A field that it lacks is the sender's fault, unlike any other `KeyError`."""

    def __missing__(self, field: str) -> NoReturn:
        raise GpuWorkerError("BadRequest", f"the request has no {field!r}")
