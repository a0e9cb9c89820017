"""Trains on an agent that you run yourself: a run with `rollouts: external`. Needs Python 3.9, and no packages.

    run = Run.from_env()
    async with run.group("task-17") as trials:
        for trial in trials:
            answer = await my_agent(base_url=trial.base_url, api_key=trial.api_key)
            await trial.report(score(answer))

`export $(npx trialgate key RUN)` sets the variables that `Run.from_env` reads.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http.client import HTTPException
from typing import Any, TypeVar, Union

from trialgate_client import ClaimedTrial, ClaimReply, TrialgateApiError, TrialgateClient

log = logging.getLogger("trialgate")
T = TypeVar("T")
Reward = Union[float, Mapping[str, float]]  # noqa: UP007  # Python 3.9 evaluates it

_ENDED = ("completed", "failed", "cancelled")
_THREADS = 16
_DISCARD_SECONDS = 10.0


class RunEnded(Exception):
    """The run has no more groups. `status` is `completed`, `failed` or `cancelled`."""

    def __init__(self, run_id: str, status: str, reason: str | None) -> None:
        super().__init__(f"run {run_id} is {status}" + (f": {reason}" if reason else ""))
        self.status = status


class Trial:
    """One trial of a claimed group. Any client of OpenAI or Anthropic reaches the model by `base_url` and `api_key`."""

    model = "policy"

    def __init__(self, run: Run, claimed: ClaimedTrial, task: str) -> None:
        self.id = claimed["trial_id"]
        self.index = claimed["trial_index"]
        self.attempt = claimed["attempt"]
        self.base_url = claimed["base_url"]
        self.api_key = claimed["api_key"]
        self.task = task
        self.is_ended = False
        self._run = run

    async def report(self, reward: Reward) -> bool:
        """Ends the trial with its reward: a finite number, or several by name.

        Returns False when the run had ended the trial before, at a deadline or because the run went on without it.
        Raises ValueError for a reward that is not finite.
        """
        return await self._end(_finite(reward), None, self._run.retry_seconds)

    async def discard(self, reason: str) -> bool:
        """Ends the trial without a reward. It is not trained on."""
        return await self._end(None, reason, min(_DISCARD_SECONDS, self._run.retry_seconds))

    async def _end(self, reward: Reward | None, reason: str | None, retry_seconds: float) -> bool:
        def ask(client: TrialgateClient, key: str) -> Any:
            return client.report(self._run.id, self.id, self.attempt, reward, reason, key=key)

        try:
            _, cancelled = await self._run._ask(ask, retry_seconds)
        except TrialgateApiError as error:
            if error.code != "attempt_closed":
                raise
            log.warning("%s", error)
            self.is_ended = True
            return False
        self.is_ended = True
        if cancelled:
            raise cancelled
        return True


class Run:
    def __init__(self, run_id: str, base_url: str, key: str, retry_seconds: float = 600.0) -> None:
        """`retry_seconds`: how long a gateway that cannot be reached is asked again."""
        self.id = run_id
        self.retry_seconds = retry_seconds
        self._key = key
        self._client = TrialgateClient(base_url)
        # asyncio's own threads may all be busy with the program's agents.
        self._threads = ThreadPoolExecutor(_THREADS, "trialgate")

    @classmethod
    def from_env(cls) -> Run:
        """Reads TRIALGATE_RUN, TRIALGATE_URL and TRIALGATE_RUN_KEY, which `npx trialgate key RUN` prints.

        Removes the key from the environment, so that an agent that is started as a process does not inherit it.
        """
        return cls(os.environ["TRIALGATE_RUN"], os.environ["TRIALGATE_URL"], os.environ.pop("TRIALGATE_RUN_KEY"))

    @asynccontextmanager
    async def group(self, task: str) -> AsyncIterator[list[Trial]]:
        """Claims a group of trials for `task`, and waits until the run has one.

        All trials of a group do the same task, because their rewards are compared with each other. Trials that have no
        reward at the end are discarded, also when the body raises.

        Raises RunEnded when the run has no more groups.
        """
        trials = await self._claim(task)
        reason = "the program gave it no reward"
        try:
            yield trials
        except BaseException as error:
            reason = f"the program stopped: {type(error).__name__}: {error}".removesuffix(": ")
            raise
        finally:
            await _discard_all(trials, reason)

    async def _claim(self, task: str) -> list[Trial]:
        claim = str(uuid.uuid4())
        waits_for: str | None = None
        started = time.monotonic()
        while True:
            try:
                reply, cancelled = await self._ask(
                    lambda client, key: client.claim(self.id, task, claim, key=key), self.retry_seconds
                )
            except TrialgateApiError as error:
                # A run that has just been started is not known yet.
                if error.code != "not_found" or time.monotonic() - started > self.retry_seconds:
                    raise
                await asyncio.sleep(1)
                continue
            trials = self._trials_of(reply)
            if cancelled:
                await _discard_all(trials, "the program stopped before it began")
                raise cancelled
            if reply["run"] in _ENDED:
                raise RunEnded(self.id, reply["run"], reply["reason"])
            if trials:
                return trials
            if reply["run"] == "blocked" and reply["reason"] != waits_for:
                waits_for = reply["reason"]
                log.warning("run %s is blocked: %s", self.id, waits_for)
            await asyncio.sleep(1)

    def _trials_of(self, reply: ClaimReply) -> list[Trial]:
        group = reply["group"]
        return [] if group is None else [Trial(self, each, group["task"]) for each in group["trials"]]

    async def _ask(
        self, ask: Callable[[TrialgateClient, str], T], retry_seconds: float
    ) -> tuple[T, asyncio.CancelledError | None]:
        """Asks the gateway, and asks again while it or its database is away: repeating a claim or a report is safe.

        A request under way is awaited also when the caller is cancelled, because its result would be lost otherwise.
        """
        give_up = time.monotonic() + retry_seconds
        while True:
            request = asyncio.get_running_loop().run_in_executor(self._threads, ask, self._client, self._key)
            cancelled: asyncio.CancelledError | None = None
            try:
                try:
                    return await asyncio.shield(request), None
                except asyncio.CancelledError as error:
                    cancelled = error
                    return await request, cancelled
            except TrialgateApiError as error:
                if error.status < 500 or cancelled or time.monotonic() > give_up:
                    raise
                log.warning("trying again in 2 s: %s", error)
            except (OSError, HTTPException, ValueError) as error:
                if cancelled or time.monotonic() > give_up:
                    raise
                log.warning("the gateway cannot be reached, trying again in 2 s: %s", error)
            await asyncio.sleep(2)


async def _discard_all(trials: list[Trial], reason: str) -> None:
    """Discards the trials that have not ended. A failure here must not hide the error that ended the program."""
    left = [trial for trial in trials if not trial.is_ended]
    for result in await asyncio.gather(*(trial.discard(reason) for trial in left), return_exceptions=True):
        if isinstance(result, Exception):
            log.warning("a trial could not be discarded, and ends at its deadline: %s", result)


def _finite(reward: Reward) -> Reward:
    if isinstance(reward, Mapping):
        return {str(name): _number(value, f"{name}: ") for name, value in reward.items()}
    return _number(reward, "")


def _number(value: Any, name: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name}a reward is a finite number, found {value!r}")
    return number
