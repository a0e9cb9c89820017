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
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.error import URLError

from trialgate_client import ClaimedTrial, TrialgateApiError, TrialgateClient

log = logging.getLogger("trialgate")
T = TypeVar("T")

_ENDED = ("completed", "failed", "cancelled")


class RunEnded(Exception):
    """The run takes no more groups. `status` is `completed`, `failed` or `cancelled`."""

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
        self.is_reported = False
        self._run = run

    async def report(self, reward: float | Mapping[str, float]) -> bool:
        """Ends the trial with its reward: a finite number, or several by name.

        Returns False when the run had ended the trial before, at a deadline or because the run went on without it.
        """
        return await self._end(reward, None)

    async def discard(self, reason: str) -> bool:
        """Ends the trial without a reward. It is not trained on."""
        return await self._end(None, reason[:4000])

    async def _end(self, reward: float | Mapping[str, float] | None, reason: str | None) -> bool:
        try:
            await self._run._ask(
                lambda client, key: client.report(self._run.id, self.id, self.attempt, reward, reason, key=key)
            )
        except TrialgateApiError as error:
            if error.code != "attempt_closed":
                raise
            log.warning("%s", error)
            self.is_reported = True
            return False
        self.is_reported = True
        return True


class Run:
    def __init__(self, run_id: str, base_url: str, key: str, patience: float = 600.0) -> None:
        """`patience`: the seconds for which a gateway that cannot be reached is asked again."""
        self.id = run_id
        self._key = key
        self._client = TrialgateClient(base_url)
        self._patience = patience

    @classmethod
    def from_env(cls) -> Run:
        """Reads TRIALGATE_RUN, TRIALGATE_URL and TRIALGATE_RUN_KEY, which `npx trialgate key RUN` prints."""
        return cls(os.environ["TRIALGATE_RUN"], os.environ["TRIALGATE_URL"], os.environ["TRIALGATE_RUN_KEY"])

    @asynccontextmanager
    async def group(self, task: str) -> AsyncIterator[list[Trial]]:
        """Claims a group of trials for `task`, and waits until the run has one.

        All trials of a group do the same task, because their rewards are compared with each other. Trials that have no
        report at the end are discarded, also when the body raises.

        Raises RunEnded when the run takes no more groups.
        """
        trials = await self._claim(task)
        reason = "the program left the group without a reward"
        try:
            yield trials
        except BaseException as error:
            reason = f"the program stopped: {type(error).__name__}: {error}"
            raise
        finally:
            left = [trial.discard(reason) for trial in trials if not trial.is_reported]
            await asyncio.gather(*left)

    async def _claim(self, task: str) -> list[Trial]:
        claim = str(uuid.uuid4())
        waits_for: str | None = None
        while True:
            reply = await self._ask(lambda client, key: client.claim(self.id, task, claim, key=key), is_claim=True)
            if reply["run"] in _ENDED:
                raise RunEnded(self.id, reply["run"], reply["reason"])
            group = reply["group"]
            if group is not None:
                return [Trial(self, each, group["task"]) for each in group["trials"]]
            if reply["run"] == "blocked" and reply["reason"] != waits_for:
                waits_for = reply["reason"]
                log.warning("run %s is blocked: %s", self.id, waits_for)
            await asyncio.sleep(1)

    async def _ask(self, ask: Callable[[TrialgateClient, str], T], is_claim: bool = False) -> T:
        """Asks the gateway, and asks again while it or its database is away. Repeating a claim or a report is safe.

        A run that has just been started is not known yet, so a claim waits for it too.
        """
        give_up = time.monotonic() + self._patience
        while True:
            try:
                return await asyncio.to_thread(ask, self._client, self._key)
            except TrialgateApiError as error:
                is_passing = error.status >= 500 or (is_claim and error.code == "not_found")
                if not is_passing or time.monotonic() > give_up:
                    raise
                _note(error)
            except (URLError, OSError) as error:
                if time.monotonic() > give_up:
                    raise
                _note(error)
            await asyncio.sleep(2)


def _note(error: Any) -> None:
    log.warning("trying again in 2 s: %s", error)
