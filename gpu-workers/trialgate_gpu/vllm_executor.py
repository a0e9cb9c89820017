"""vLLM's executor for few cores: `--distributed-executor-backend trialgate_gpu.vllm_executor.QuietExecutor`.

vLLM 0.32 runs the model on a CPU in a process of its own, and its scheduler spins on a second core for as long as that
works (`SpinCondition`, `sched_yield`). On two cores this takes the core that agents, sandboxes and Temporal need.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from vllm.v1.executor.multiproc_executor import MultiprocExecutor

if TYPE_CHECKING:
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

SPIN_SECONDS = 0.0005
"""After that it sleeps until the worker notifies it; a step takes some 10 to 100 ms."""

LOOK_MS = 2
"""It also looks by itself: the second of two notifications within a millisecond is dropped (`SNDHWM` 1), which vLLM's
own spinning hides, and its next look of its own would be 5 s later."""


class QuietExecutor(MultiprocExecutor):
    def _init_executor(self) -> None:
        super()._init_executor()
        for queue in self.response_mqs:
            if queue._spin_condition is not None:
                make_quiet(queue._spin_condition)


def make_quiet(condition: SpinCondition) -> None:
    """A reader that sleeps soon, and never past `LOOK_MS` without a look at what it waits for."""
    condition.busy_loop_s = SPIN_SECONDS
    condition.wait = partial(_wait, condition.wait)


def _wait(wait: Callable[..., None], timeout_ms: int | None = None) -> None:
    wait(LOOK_MS if timeout_ms is None else min(timeout_ms, LOOK_MS))
