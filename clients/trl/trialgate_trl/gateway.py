"""Asks the gateway from asyncio, and asks again while it is away."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, TypeVar

from trialgate_client import TrialgateApiError, TrialgateClient

from .errors import RolloutError

log = logging.getLogger("trialgate")
T = TypeVar("T")
_THREADS = 16
_PAUSE_SECONDS = 2.0


class Gateway:
    def __init__(self, url: str, admin_key: str | None, retry_seconds: float) -> None:
        """`retry_seconds`: how long a gateway that cannot be reached is asked again."""
        self.url = url
        self._client = TrialgateClient(url, admin_key)
        self._retry_seconds = retry_seconds
        # asyncio's own threads may all be busy with the program's agents.
        self._threads = ThreadPoolExecutor(_THREADS, "trialgate")

    async def ask(self, ask: Callable[[TrialgateClient], T]) -> T:
        """Returns the answer. Raises `RolloutError` when the gateway stays away or refuses the key."""
        give_up = time.monotonic() + self._retry_seconds
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, ask, self._client)
            except TrialgateApiError as error:
                if error.status in (401, 403):
                    raise RolloutError(
                        f"the gateway at {self.url} refuses the key ({error}): set TRIALGATE_ADMIN_KEY to the "
                        "deployment's admin key, which `npx trialgate up` and `npx trialgate gateway` say where to find"
                    ) from error
                if error.status < 500 and error.code != "no_trialgate":
                    raise
                what = str(error)
            except (OSError, HTTPException, ValueError) as error:
                what = f"{type(error).__name__}: {error}"
            if time.monotonic() > give_up:
                raise RolloutError(
                    f"the gateway at {self.url} did not answer for {self._retry_seconds:g} s ({what}): start it with "
                    "`npx trialgate up` or `npx trialgate gateway --engine URL`, or set TRIALGATE_URL to where it is"
                )
            log.warning("the gateway at %s does not answer, trying again in %g s: %s", self.url, _PAUSE_SECONDS, what)
            await asyncio.sleep(min(_PAUSE_SECONDS, max(self._retry_seconds, 0.1)))


class LoopThread:
    """An event loop in a thread of its own, so that it also works where the caller has one, as in a notebook."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="trialgate-rollouts", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for `work`, and cancels it when the wait is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
