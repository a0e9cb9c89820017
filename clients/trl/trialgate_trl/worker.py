"""AsyncGRPOTrainer's rollout worker: carries out groups of trials beside the training (`RolloutWorkerProtocol`)."""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import time
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np

from .agents import Prompt
from .errors import RolloutError
from .gateway import LoopThread
from .grpo import sampling_of
from .rollouts import NoQuorum, Rollout, Rollouts
from .weights import Weights

if TYPE_CHECKING:
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

log = logging.getLogger("trialgate")
_TICK_SECONDS = 0.5
_STOP_SECONDS = 60.0


class Worker:
    """Groups are started in the order of the data set, again and again, until `stop`."""

    def __init__(
        self,
        loop: LoopThread,
        rollouts: Rollouts,
        weights: Weights,
        dataset: Iterable[Mapping[str, Any]],
        args: Any,
        trials: int,
        most_failed_groups: int,
    ) -> None:
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(args.queue_maxsize)
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self._loop = loop
        self._rollouts = rollouts
        self._weights = weights
        self._dataset = dataset
        self._group_size = args.num_generations
        self._sampling = sampling_of(args)
        self._trials = trials
        self._most_failed_groups = most_failed_groups
        self._failed_in_a_row = 0
        self._error: BaseException | None = None
        self._beat = time.monotonic()
        self._work: Any = None
        self._is_ended = True

    def start(self) -> None:
        if self._work is not None:
            return
        self._beat = time.monotonic()
        self._work = asyncio.run_coroutine_threadsafe(self._run(), self._loop.loop)

    def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            deadline = time.monotonic() + _STOP_SECONDS
            while not self._is_ended and time.monotonic() < deadline:
                time.sleep(0.05)
            self._work = None

    def update_model_version(self, model_version: int) -> None:
        if model_version != self._weights.version:
            self._error = RolloutError(
                f"the trainer is at version {model_version} and the engines have {self._weights.version} of its "
                "weights: pass `weight_transfer=trialgate.weights` to the same trainer, and make a new Trialgate for "
                "each trainer"
            )

    def check_health(self, stale_after_s: float) -> None:
        if self._error is not None:
            raise self._error
        silent = time.monotonic() - self._beat
        if self._work is not None and silent > stale_after_s:
            raise RolloutError(
                f"the rollout worker has not moved for {silent:.0f} s: an agent's function blocks the event loop. "
                "Await in it, or make it a plain function, which runs in a thread"
            )

    async def _run(self) -> None:
        self._is_ended = False
        prompts = self._prompts()
        limit = asyncio.Semaphore(self._trials)
        # While a group waits for its slowest trial, others fill the places that it has left.
        most_groups = max(1, 2 * self._trials // self._group_size)
        groups: set[asyncio.Task[None]] = set()
        try:
            for group_id in itertools.count():
                while len(groups) >= most_groups:
                    self._beat = time.monotonic()
                    done, groups = await asyncio.wait(groups, timeout=_TICK_SECONDS, return_when="FIRST_COMPLETED")
                    for each in done:
                        each.result()
                groups.add(asyncio.create_task(self._group(group_id, next(prompts), limit)))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error
        finally:
            for each in groups:
                each.cancel()
            await asyncio.gather(*groups, return_exceptions=True)
            self._is_ended = True

    def _prompts(self) -> Iterator[Prompt]:
        """Yields the prompts again and again, and keeps no row."""
        while True:
            row = None
            for row in self._dataset:
                yield row["prompt"]
            if row is None:
                raise RolloutError(
                    "the data set of the worker has no row, or can be read only once: pass one with rows, which can be "
                    "iterated over again"
                )

    async def _group(self, group_id: int, prompt: Prompt, limit: asyncio.Semaphore) -> None:
        started = time.monotonic()
        try:
            self._rollouts.check([prompt])
            done = await self._rollouts.group(prompt, self._group_size, self._sampling, 1, limit)
        except NoQuorum as error:
            self._failed_in_a_row += 1
            self.metrics_queue.put({"rollout/groups_without_quorum_total": 1.0})
            log.warning("a group is left out: %s", error)
            if self._failed_in_a_row >= self._most_failed_groups:
                raise RolloutError(
                    f"{self._most_failed_groups} groups in a row ended without a quorum. {error}"
                ) from error
            return
        self._failed_in_a_row = 0
        self._report(done, time.monotonic() - started)
        for sample in samples_of(done, group_id):
            await self._put(sample)

    def _report(self, done: list[Rollout], seconds: float) -> None:
        trained = [rollout for rollout in done if rollout.is_trainable]
        rows = sum(len(rollout.rows) for rollout in trained)
        self.metrics_queue.put(
            {
                "rollout/group_duration_s": seconds,
                "rollout/trials_without_sample_total": float(len(done) - len(trained)),
                "rollout/samples_per_rollout": (float(rows), float(len(trained))),
            }
        )

    async def _put(self, sample: RolloutSample) -> None:
        """Waits while the trainer has enough samples."""
        while True:
            try:
                sample.enqueued_at = time.time()
                self.rollout_buffer.put_nowait(sample)
                return
            except queue.Full:
                await asyncio.sleep(0.1)


def samples_of(done: list[Rollout], group_id: int) -> list[RolloutSample]:
    """Returns the rows of a group, each with the advantage of its trial: the branches of a trial share it."""
    # Users of GRPOTrainer need none of what this imports.
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    trained = [rollout for rollout in done if rollout.is_trainable]
    rewards = [rollout.reward for rollout in trained]
    mean, deviation = fmean(rewards), pstdev(rewards)
    return [
        RolloutSample(
            prompt=rollout.prompt
            if isinstance(rollout.prompt, list)
            else [{"role": "user", "content": rollout.prompt}],
            completion=rollout.messages,
            input_ids=np.array(row.token_ids, dtype=np.int64),
            completion_mask=np.array(row.mask, dtype=np.int64),
            old_log_probs=np.array(row.logprobs, dtype=np.float32),
            advantage=(rollout.reward - mean) / (deviation + 1e-8),
            model_version=rollout.policy_version,
            group_id=group_id,
            metrics={
                "reward": rollout.reward,
                "reward_std": deviation,
                **{f"rewards/{name}": value for name, value in rollout.rewards.items()},
            },
        )
        for rollout in trained
        for row in rollout.rows
    ]
