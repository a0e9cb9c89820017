"""Passes the progress of a working thread to the event loop, which sends its heartbeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import Cancelled


class Progress:
    """Thread-safe: the worker thread writes, the heartbeat reads, a cancellation sets the flag."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._state: dict[str, float | int | str] = {"phase": "starting"}
        self.seconds: dict[str, float] = {}

    def show(self, phase: str, **numbers: float | str) -> None:
        """Sets the content of the next heartbeat. Raises `Cancelled` when the activity was cancelled."""
        self._state = {"phase": phase, **numbers}
        self.check()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def state(self) -> dict[str, float | int | str]:
        return self._state

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Adds the block's wall time to `seconds[part]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
