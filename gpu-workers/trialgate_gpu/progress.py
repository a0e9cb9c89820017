"""Passes the progress of a working thread to the event loop, which sends its heartbeats, and to the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import Cancelled

# A phase has a line in the log when it begins, and then one each time that this many seconds have passed.
LOG_SECONDS = 10.0


class Progress:
    """Thread-safe: the worker thread writes, the heartbeat reads, a cancellation sets the flag.

    `log` gets a line of text now and then.
    """

    def __init__(self, log: Callable[[str], None] | None = None) -> None:
        self._log = log
        self._logged = ("", 0.0)
        self._cancelled = threading.Event()
        self._state: dict[str, float | int | str] = {"phase": "starting"}
        self.seconds: dict[str, float] = {}

    def show(self, phase: str, **numbers: float | str) -> None:
        """Sets the content of the next heartbeat. Raises `Cancelled` when the activity was cancelled."""
        self._state = {"phase": phase, **numbers}
        self._note(phase)
        self.check()

    def _note(self, phase: str) -> None:
        before, at = self._logged
        now = time.monotonic()
        if self._log is not None and (phase != before or now - at >= LOG_SECONDS):
            self._logged = (phase, now)
            self._log(text_of(self._state))

    def check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

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


def text_of(state: dict[str, float | int | str]) -> str:
    """Returns progress as text: "train, pack 3 of 12, 41,022 tokens". `status` and `watch` show it in the same form."""
    numbers = dict(state)
    parts = [str(numbers.pop("phase"))]
    if epoch := numbers.pop("epoch", 0):
        parts.append(f"epoch {epoch + 1}")
    update, updates = numbers.pop("update", 1), numbers.pop("updates", 1)
    if updates != 1:
        parts.append(f"update {update} of {updates}")
    if "pack" in numbers and "packs" in numbers:
        parts.append(f"pack {numbers.pop('pack')} of {numbers.pop('packs')}")
    if "tokens" in numbers:
        parts.append(f"{numbers.pop('tokens'):,} tokens")
    return ", ".join([*parts, *(f"{name} {value}" for name, value in numbers.items())])
