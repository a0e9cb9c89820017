"""vLLM's executor for few cores: `--distributed-executor-backend trialgate_gpu.vllm_executor.QuietExecutor`.

vLLM 0.32 runs the model on a CPU in a process of its own, and its scheduler spins on a second core for as long as that
works (`SpinCondition`, `sched_yield`). On two cores this takes the core that agents, sandboxes and Temporal need.
"""

from __future__ import annotations

from vllm.v1.executor.multiproc_executor import MultiprocExecutor

SPIN_SECONDS = 0.0005
"""After that it sleeps until the worker notifies it; a step takes some 10 to 100 ms."""


class QuietExecutor(MultiprocExecutor):
    def _init_executor(self) -> None:
        super()._init_executor()
        for queue in self.response_mqs:
            if queue._spin_condition is not None:
                queue._spin_condition.busy_loop_s = SPIN_SECONDS
