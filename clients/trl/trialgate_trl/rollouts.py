"""Carries out trials and groups of trials, and reads what is to be trained from the gateway's record of them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from trialgate_client import Sample, Session, TrialgateApiError, Turn

from .agents import Agent, Prompt, Reward, Trial, text_of
from .errors import RolloutError
from .gateway import Gateway
from .weights import Weights

log = logging.getLogger("trialgate")
# A cancelled trial asks a gateway that is away for this long to complete its session.
_LAST_SECONDS = 10.0


class NoQuorum(RolloutError):
    """Too few trials of a group can be trained."""


@dataclass(frozen=True)
class Row:
    """One token sequence as TRL trains it. All lists have an entry for each token."""

    token_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    policy_versions: list[int | None]

    @property
    def trained(self) -> int:
        return sum(self.mask)

    @property
    def prompt_length(self) -> int:
        return self.mask.index(1)


@dataclass(frozen=True)
class Rollout:
    """What became of a trial. `reason` says why a trial without rows or without a reward cannot be trained."""

    session: str | None
    prompt: Prompt
    rows: list[Row]
    messages: list[dict[str, Any]]
    """The reply of each recorded call, as messages."""
    rewards: dict[str, float]
    reason: str | None = None

    @property
    def is_trainable(self) -> bool:
        return self.reason is None

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def policy_version(self) -> int:
        """The oldest version that sampled one of its tokens."""
        return min(version for row in self.rows for version in row.policy_versions if version is not None)


@dataclass(frozen=True)
class Settings:
    quorum: int = 2
    attempts: int = 2
    trial_seconds: float = 3600.0
    budgets: Mapping[str, float] | None = None


class Rollouts:
    def __init__(self, gateway: Gateway, agent: Agent, weights: Weights, settings: Settings) -> None:
        self._gateway = gateway
        self._agent = agent
        self._weights = weights
        self._settings = settings

    def check(self, prompts: list[Prompt]) -> None:
        self._agent.check(prompts)

    async def group(
        self, prompt: Prompt, size: int, sampling: Mapping[str, Any], oldest: int, limit: asyncio.Semaphore
    ) -> list[Rollout]:
        """Carries out `size` trials of a prompt, whose rewards are compared with each other.

        `oldest` is the oldest version of the trainer's weights that may have sampled. Raises `NoQuorum` when fewer
        trials than the quorum can be trained.
        """
        trials = [asyncio.create_task(self._limited(prompt, sampling, oldest, limit)) for _ in range(size)]
        try:
            done = await asyncio.gather(*trials)
        finally:
            for trial in trials:
                trial.cancel()
            await asyncio.gather(*trials, return_exceptions=True)
        trainable = sum(rollout.is_trainable for rollout in done)
        quorum = min(self._settings.quorum, size)
        if trainable < quorum:
            reasons = "; ".join(sorted({rollout.reason for rollout in done if rollout.reason is not None}))
            raise NoQuorum(
                f"{trainable} of {size} trials of the prompt {text_of(prompt)[:60]!r} can be trained, and the quorum "
                f"is {quorum}: {reasons}. Repair the agent or the task, leave the prompt out, or set `quorum` and "
                "`attempts` of Trialgate(…)"
            )
        return done

    async def _limited(
        self, prompt: Prompt, sampling: Mapping[str, Any], oldest: int, limit: asyncio.Semaphore
    ) -> Rollout:
        async with limit:
            return await self._trial(prompt, sampling, oldest)

    async def _trial(self, prompt: Prompt, sampling: Mapping[str, Any], oldest: int) -> Rollout:
        rollout = Rollout(None, prompt, [], [], {}, "no attempt was made")
        for _ in range(self._settings.attempts):
            rollout = await self._attempt(prompt, sampling, oldest)
            if rollout.is_trainable:
                break
            log.warning("trial %s cannot be trained: %s", rollout.session, rollout.reason)
        return rollout

    async def _attempt(self, prompt: Prompt, sampling: Mapping[str, Any], oldest: int) -> Rollout:
        """Makes one attempt, in a session of its own: what an earlier one still writes cannot reach it."""
        opened: list[str] = []

        async def open_trial() -> Trial:
            session = await self._open(sampling)
            opened.append(session.id)
            return Trial(prompt, session.id, session.base_url, session.api_key)

        def failed(reason: str) -> Rollout:
            return Rollout(opened[-1] if opened else None, prompt, [], [], {}, reason)

        limit = asyncio.timeout(self._settings.trial_seconds)
        try:
            async with limit:
                done = await self._agent.run(prompt, open_trial)
        except RolloutError:
            raise
        except Exception as error:
            if limit.expired():
                return failed(f"the agent did not end within {self._settings.trial_seconds:g} s")
            return failed(f"the agent raised {type(error).__name__}: {error}")
        finally:
            task = asyncio.current_task()
            for session in opened:
                await self._complete(session, _LAST_SECONDS if task and task.cancelling() else None)
        rewards = _named(done.reward)
        if isinstance(rewards, str):
            return Rollout(done.session, prompt, [], [], {}, done.reason or rewards)
        try:
            return await self._read(prompt, done.session, rewards, sampling, oldest)
        except TrialgateApiError as error:
            if error.code == "session_not_found" and not opened:
                raise RolloutError(
                    f"the gateway at {self._gateway.url} has no session {done.session}, in which the agent's trial was "
                    "recorded: `trialgate try` used another deployment. Set TRIALGATE_URL to the gateway of that one, "
                    'or have `sandboxed` use this one: `cwd=`, or options=["--home", …, "--gateway-url", …]'
                ) from error
            return Rollout(done.session, prompt, [], [], {}, f"its record could not be read: {error}")

    async def _open(self, sampling: Mapping[str, Any]) -> Trial:
        session_id = f"{self._weights.name}-{uuid.uuid4().hex[:12]}"
        opened = await self._gateway.ask(
            lambda client: client.open(
                session_id,
                sampling=sampling,
                budgets=self._settings.budgets,  # type: ignore[arg-type]
                metadata={"trainer": "trl", "weights": self._weights.name},
            )
        )
        return Trial("", opened["session_id"], opened["base_url"], opened["api_key"])

    async def _complete(self, session: str, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._gateway.ask(lambda client: client.complete(session))
        except (TrialgateApiError, RolloutError, TimeoutError) as error:
            log.warning("session %s stays open: %s", session, error)

    async def _read(
        self, prompt: Prompt, session: str, rewards: dict[str, float], sampling: Mapping[str, Any], oldest: int
    ) -> Rollout:
        record = await self._gateway.ask(lambda client: client.get(session))
        samples = (await self._gateway.ask(lambda client: client.samples(session)))["samples"]
        turns = {turn["call_id"]: turn for turn in record["turns"]}
        trained = [sample for sample in samples if any(sample["loss_mask"])]
        reason = _why_untrained(record) if not trained else _why_masked(trained)
        if reason is not None:
            return Rollout(session, prompt, [], [], {}, reason)
        for call_id in {call_id for sample in trained for call_id in sample["call_ids"]}:
            self._check_weights(session, turns[call_id], oldest)
            _check_temperature(session, turns[call_id], sampling["temperature"])
        rows = [_row(sample, turns, self._weights) for sample in trained]
        return Rollout(session, prompt, rows, [_reply(turn) for turn in record["turns"]], rewards)

    def _check_weights(self, session: str, turn: Turn, oldest: int) -> None:
        """Raises `RolloutError` when the engine sampled a call under other weights than the trainer's."""
        version = self._weights.version_of(turn["weight_version"])
        if version is not None and oldest <= version <= self._weights.newest:
            return
        ours = f"{self._weights.name}@{self._weights.version}"
        found = turn["weight_version"] or "that it was started with"
        if self._weights.version == 0:
            how = "no weights of this trainer have reached an engine yet: pass `weight_transfer=trialgate.weights`"
        else:
            how = (
                "the engine was started again, another trainer or a run gives it weights, or the gateway has an "
                "engine that did not get these. Give the trainer engines of its own, and start it again"
            )
        raise RolloutError(
            f"the engine sampled trial {session} with the weights {found!r}, and the trainer's are {ours!r}: {how}"
        )


def _named(reward: Reward) -> dict[str, float] | str:
    """Returns the rewards by name, or why there are none."""
    if reward is None or reward == {}:
        return "the agent gave it no reward"
    named = reward if isinstance(reward, Mapping) else {"reward": reward}
    try:
        rewards = {str(name): float(value) for name, value in named.items()}
    except (TypeError, ValueError) as error:
        return f"the reward {reward!r} is not a number or a dict of numbers ({error})"
    wrong = next((name for name, value in rewards.items() if not isfinite(value)), None)
    return rewards if wrong is None else f"its reward {wrong!r} is not a finite number"


def _why_untrained(record: Session) -> str:
    untrainable = sorted({turn["untrainable"] for turn in record["turns"] if turn["untrainable"] is not None})
    if untrainable:
        return f"none of its calls can be trained ({', '.join(untrainable)}, see docs/gateway.md)"
    if record["unfinished"]:
        reasons = sorted({turn["reason"] or turn["status"] for turn in record["unfinished"]})
        return f"all of its calls failed ({'; '.join(reasons)[:300]})"
    return "it has no recorded call: the agent must ask the model by the trial's `base_url` and `api_key`"


def _check_temperature(session: str, turn: Turn, wanted: float) -> None:
    """Raises `RolloutError` for a call that was sampled at another temperature than the trainer computes with."""
    found = turn["sampling"].get("temperature")
    found = 1.0 if found is None else found
    if found != wanted:
        raise RolloutError(
            f"trial {session} was sampled at temperature {found:g}, and the trainer's is {wanted:g}: set the same in "
            "the run file that `options` of `sandboxed` name and in the trainer's arguments"
        )


def _why_masked(samples: list[Sample]) -> str | None:
    if not any("sampling_mask" in sample for sample in samples):
        return None
    return (
        "it was sampled with top_p, top_k or a forced form, and TRL's log-probabilities are over all tokens: "
        "leave these out of the trainer's arguments and of the agent's requests"
    )


def _row(sample: Sample, turns: Mapping[str, Turn], weights: Weights) -> Row:
    mask = sample["loss_mask"]
    versions: list[int | None] = [None] * len(mask)
    for call_id in sample["call_ids"]:
        turn = turns[call_id]
        start = len(turn["prompt_token_ids"])
        # Without a version in the engine's reply there is the one that the engine gave when it was last asked.
        version = weights.version_of(turn["weight_version"])
        whole = [{"version": version, "start": 0, "end": len(turn["completion_token_ids"])}]
        for span in turn["version_spans"] or whole:
            for position in range(start + span["start"], start + span["end"]):
                versions[position] = span["version"] if mask[position] else None
    return Row(sample["token_ids"], mask, sample["logprobs"], versions)


def _reply(turn: Turn) -> dict[str, Any]:
    calls = {"tool_calls": turn["tool_calls"]} if turn["tool_calls"] else {}
    return {"role": "assistant", "content": turn["completion_text"], **calls}
