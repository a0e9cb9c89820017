"""Runs trials on a server of Harbor (`harbor serve`). Its tasks, agents and environments are those of its machine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
from harbor.client import APIError, AsyncHarbor
from harbor.models.job.config import JobConfig, RetryConfig
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult

from trialgate_program import Refused

log = logging.getLogger("trialgate")
T = TypeVar("T")

_POLL_SECONDS = 1.0
#: How long a server that cannot be reached is asked again.
_RETRY_SECONDS = 600.0
_ENDED = ("finished", "cancelled")


class HarborServer:
    """Submits each trial as a job of its own. The server's `HARBOR_API_KEY` is read from the environment."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = AsyncHarbor(url)

    async def close(self) -> None:
        await self._client.close()

    async def run(self, config: TrialConfig) -> TrialResult | None:
        """Returns how the trial ended; None when the server kept no result of it. A cancel here is one there too."""
        job = JobConfig(
            job_name=config.trial_name,
            tasks=[config.task],
            agents=[config.agent],
            environment=config.environment,
            override_error_policy=config.override_error_policy,
            # An agent that has begun is not run again, and the program begins the others again itself.
            retry=RetryConfig(max_retries=0),
        )
        try:
            # The same key again is the same job, so a lost answer does no harm.
            submitted = await self._ask(
                lambda: self._client.jobs.submit(job, idempotency_key=f"trialgate-{config.trial_name}")
            )
        except APIError as error:
            raise Refused(f"Harbor's server {self._url} refuses the trial: {error}") from error
        try:
            while (await self._ask(lambda: self._client.jobs.get(submitted.job_id))).state not in _ENDED:
                await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            await asyncio.shield(self._cancel(submitted.job_id))
            raise
        found = await self._ask(lambda: self._client.rollouts.list(job_ids=[submitted.job_id]))
        rollout = await self._ask(lambda: self._client.rollouts.get(found.items[0].id))
        return rollout.result

    async def _cancel(self, job_id: Any) -> None:
        try:
            await self._client.jobs.cancel(job_id)
        except (APIError, httpx.HTTPError) as error:
            log.warning("job %s of Harbor's server was not cancelled: %s", job_id, error)

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks again while the server is away."""
        give_up = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                return await ask()
            except (APIError, httpx.TransportError) as error:
                if (isinstance(error, APIError) and error.status_code < 500) or time.monotonic() > give_up:
                    raise
                log.warning("Harbor's server %s cannot be reached, trying again in 2 s: %s", self._url, error)
            await asyncio.sleep(2)
