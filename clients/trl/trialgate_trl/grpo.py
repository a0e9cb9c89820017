"""GRPOTrainer's `rollout_func`: gives the trainer's weights to the engines, carries out the trials, returns tokens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from accelerate.utils import broadcast_object_list

from .agents import Prompt
from .errors import RolloutError
from .gateway import LoopThread
from .rollouts import Rollout, Rollouts, Row
from .weights import Weights, named_weights

log = logging.getLogger("trialgate")
# Outside runs the gateway reads an engine's weight version again when it is this old (docs/gateway.md).
SETTLE_SECONDS = 1.2


class RolloutFunction:
    """Called by GRPOTrainer with the prompts of this process, each as often as it wants completions."""

    def __init__(self, loop: LoopThread, rollouts: Rollouts, weights: Weights, trials: int) -> None:
        self._loop = loop
        self._rollouts = rollouts
        self._weights = weights
        self._trials = trials
        self._synced: int | None = None

    def __call__(self, prompts: list[Prompt], trainer: Any) -> dict[str, Any]:
        if trainer.use_vllm:
            raise RolloutError(
                "the trainer has use_vllm=True, and would give its weights to a vLLM of its own: leave it out, because "
                "the gateway's engines sample"
            )
        self._rollouts.check(prompts)
        if trainer.state.global_step != self._synced:
            self._sync(trainer)
            self._synced = trainer.state.global_step
        done = self._loop.run(self._carry_out(prompts, sampling_of(trainer.args)))
        return as_trl(done, trainer.processing_class.eos_token_id)

    async def _carry_out(self, prompts: list[Prompt], sampling: Mapping[str, Any]) -> list[Rollout]:
        limit = asyncio.Semaphore(self._trials)
        groups = [list(group) for _, group in groupby(prompts)]
        version = self._weights.version
        work = [
            asyncio.create_task(self._rollouts.group(group[0], len(group), sampling, version, limit))
            for group in groups
        ]
        try:
            done = await asyncio.gather(*work)
        finally:
            for each in work:
                each.cancel()
            # Their agents and sandboxes end before the training does.
            await asyncio.gather(*work, return_exceptions=True)
        return [rollout for group in done for rollout in group]

    def _sync(self, trainer: Any) -> None:
        """Gives the engines the trainer's weights. With LoRA these are the base weights with the adapter merged."""
        main = trainer.accelerator.is_main_process
        model = trainer.accelerator.unwrap_model(trainer.model)
        merge = getattr(model, "merge_adapter", None)
        failed: Exception | None = None
        if merge:
            merge()
        try:
            weights = named_weights(model)
            if main:
                try:
                    self._weights.pause()
                    self._weights.send_weights(weights)
                    self._weights.resume()
                except Exception as error:
                    failed = error
                finally:
                    self._weights.resume_paused()
            for _ in weights:
                pass
        finally:
            if merge:
                model.unmerge_adapter()
        (state,) = broadcast_object_list([(failed, self._weights.name, self._weights.version)], from_process=0)
        failed, self._weights.name, self._weights.version = state
        if failed is not None:
            raise failed
        time.sleep(SETTLE_SECONDS)


def sampling_of(args: Any) -> dict[str, Any]:
    """Returns how the trials are sampled: as the trainer's arguments say, whatever an agent asks for."""
    return {
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k if args.top_k else -1,
        **({} if args.min_p is None else {"min_p": args.min_p}),
        "repetition_penalty": args.repetition_penalty,
        "max_tokens": args.max_completion_length,
    }


def as_trl(done: list[Rollout], eos: int) -> dict[str, Any]:
    """Returns what GRPOTrainer expects: one completion for each prompt, in their order.

    A trial that cannot be trained becomes one masked token without a reward, so that it changes nothing.
    """
    nothing = Row([eos, eos], [0, 0], [0.0, 0.0], [None, None])
    kept = [max(rollout.rows, key=lambda row: row.trained) if rollout.is_trainable else nothing for rollout in done]
    left_out = sum(len(rollout.rows) - 1 for rollout in done if rollout.is_trainable)
    if left_out:
        log.warning(
            "%d samples of %d trials are left out: GRPOTrainer takes one for each prompt, and these trials have "
            "branches. AsyncGRPOTrainer trains them all",
            left_out,
            len(done),
        )
    starts = [1 if row is nothing else row.prompt_length for row in kept]
    rows = list(zip(kept, starts, strict=True))
    return {
        "prompt_ids": [row.token_ids[:start] for row, start in rows],
        "completion_ids": [row.token_ids[start:] for row, start in rows],
        "logprobs": [row.logprobs[start:] for row, start in rows],
        "env_mask": [row.mask[start:] for row, start in rows],
        "policy_versions": [row.policy_versions[start:] for row, start in rows],
        "trial_reward": [rollout.reward if rollout.is_trainable else None for rollout in done],
        "trial_rewards": [rollout.rewards for rollout in done],
        "trial_id": [rollout.session for rollout in done],
    }


def trial_reward(*, trial_reward: list[float | None], **_: Any) -> list[float | None]:
    """The reward function for GRPOTrainer: the sum of the rewards that the agent gave."""
    return trial_reward
