"""What the programs have in common that train a run with `rollouts: external` on another project's tasks."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Generic, NoReturn, TypeVar
from urllib.error import URLError

from trialgate_client import TrialgateApiError
from trialgate_run import Run, RunEnded, Trial

T = TypeVar("T")


class Refused(Exception):
    """Somebody must change something before the program can go on. `code` is its exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def run_program(train: Callable[[], Awaitable[int]]) -> NoReturn:
    """Runs the program and exits. Errors that a user can act on are printed as one line."""
    try:
        sys.exit(asyncio.run(_run(train)))
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        sys.exit(refused.code)
    except TrialgateApiError as error:
        print(f"error: the gateway refused: {error}", file=sys.stderr)
        sys.exit(2)
    except (URLError, ConnectionError, TimeoutError) as error:
        print(f"error: the gateway cannot be reached: {error}", file=sys.stderr)
        sys.exit(3)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)
    except KeyboardInterrupt:
        sys.exit(130)
    except asyncio.CancelledError:
        sys.exit(143)


async def _run(train: Callable[[], Awaitable[int]]) -> int:
    this = asyncio.current_task()
    if this is not None:
        # Trials under way are given back, as for Ctrl-C.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await train()


def run_from_env() -> Run:
    """Raises Refused when a variable of the run is missing."""
    try:
        return Run.from_env()
    except KeyError as error:
        raise Refused(f"{error.args[0]} is not set: export $(npx trialgate key RUN)") from error


async def train_groups(groups: int, train_on_next: Callable[[], Awaitable[None]]) -> int:
    """Trains on so many groups at the same time, until the run has ended. Returns the program's exit code."""

    async def work() -> None:
        while True:
            await train_on_next()

    workers = [asyncio.ensure_future(work()) for _ in range(groups)]
    try:
        await asyncio.gather(*workers)
    except RunEnded as ended:
        print(ended)
        return 0 if ended.status == "completed" else 4
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    raise AssertionError("the workers end only by an exception")


class Trainee(Generic[T]):
    """Claims groups of a run, attempts their trials, and reports the rewards. A subclass attempts one trial."""

    def __init__(self, run: Run, tasks: Iterator[T]) -> None:
        self._run = run
        self._tasks = tasks
        #: Groups are claimed one after another, so that tasks keep their order however many run at once.
        self._claiming = asyncio.Lock()
        self._groups = itertools.count(1)

    def title_of(self, task: T) -> str:
        raise NotImplementedError

    async def attempt(self, task: T, trial: Trial) -> float | None:
        """Returns the sum of the rewards, or None if the trial was discarded or had ended before."""
        raise NotImplementedError

    async def train_on_next(self) -> None:
        async with AsyncExitStack() as group:
            async with self._claiming:
                task = next(self._tasks)
                trials = await group.enter_async_context(self._run.group(self.title_of(task)[:512]))
            begun = time.monotonic()
            rewards = await all_of(self.attempt(task, trial) for trial in trials)
        print(_group_line(next(self._groups), trials[0].task, rewards, time.monotonic() - begun), flush=True)

    async def report(self, trial: Trial, rewards: Mapping[str, float]) -> float | None:
        """Reports a trial's rewards, or discards it when one is not finite. Returns what `attempt` returns."""
        try:
            return sum(rewards.values()) if await trial.report(rewards) else None
        except ValueError as error:
            return await self.discard(trial, str(error))

    async def discard(self, trial: Trial, reason: str) -> None:
        print(f"discarded trial {trial.index} of {trial.task}: {reason}", flush=True)
        await trial.discard(reason)


async def all_of(attempts: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results of all. When one raises, the others have ended before it does here too."""
    tasks = [asyncio.ensure_future(each) for each in attempts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def rounds(tasks: Sequence[T], seed: int) -> Iterator[T]:
    """Yields the tasks again and again, each time in another order that follows from the seed."""
    for epoch in itertools.count():
        yield from random.Random(f"{seed}/{epoch}").sample(tasks, len(tasks))


def _group_line(number: int, task: str, rewards: Sequence[float | None], seconds: float) -> str:
    """Returns the line that says how a group ended. A reward of None is a trial without one."""
    scored = [reward for reward in rewards if reward is not None]
    mean = f", mean reward {sum(scored) / len(scored):.3f}" if scored else ""
    return f"group {number}: {task}: {len(scored)} of {len(rewards)} trials scored{mean}, {seconds:.0f} s"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--groups",
        type=positive,
        default=8,
        metavar="N",
        help="groups at the same time, best as many as the run's groups_per_iteration (8)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the order of the tasks follows from it (0)")
    parser.add_argument("--limit", type=positive, metavar="N", help="use only the first N tasks")


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return value


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a number from 1")
    return int(text)
