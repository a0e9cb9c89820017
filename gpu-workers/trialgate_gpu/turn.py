"""Lets activities wait for their turn, so that a cancelled one does not wait on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from .progress import Progress

POLL_SECONDS = 0.5


@contextlib.asynccontextmanager
async def turn(lock: asyncio.Lock, progress: Progress, phase: str) -> AsyncIterator[None]:
    """Holds `lock` in its block. Raises `Cancelled` within a second of `progress.cancel()` while it waits for it."""
    acquiring = asyncio.ensure_future(lock.acquire())
    try:
        while not (await asyncio.wait({acquiring}, timeout=POLL_SECONDS))[0]:
            progress.show(phase)
        progress.check()
        yield
    finally:
        # `cancel` returns False when the lock has been acquired.
        if not acquiring.cancel():
            lock.release()
