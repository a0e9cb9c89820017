"""The errors of this worker; a `GpuWorkerError`'s `kind` becomes the Temporal application error's type."""

from __future__ import annotations


class GpuWorkerError(Exception):
    """Says what is wrong and what to do. `retryable` is False where only a person or another input can mend it."""

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


class NotFiniteError(Exception):
    """A value of a step is NaN or infinite. The step makes no update, and the message names the value."""


class Cancelled(Exception):
    """Raised between units of work once the activity has been cancelled."""
