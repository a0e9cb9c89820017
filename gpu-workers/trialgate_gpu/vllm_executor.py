"""vLLM's executor for CPUs: `--distributed-executor-backend trialgate_gpu.vllm_executor.InProcessExecutor`.

vLLM 0.32 runs the model on a CPU in a process of its own, so that OpenMP's threads can be set before they exist. The
two then wait for each other spinning, on the core that agents, sandboxes and Temporal need. In one process nothing
spins, and an engine starts sooner by a process's imports.
"""

from __future__ import annotations

import torch
from vllm.utils.ompmultiprocessing import OMPProcessManager
from vllm.v1.executor.uniproc_executor import UniProcExecutor


class InProcessExecutor(UniProcExecutor):
    """The model in the scheduler's process, on as many threads as vLLM would have given to the other one."""

    def _init_executor(self) -> None:
        threads = OMPProcessManager(self.vllm_config)
        if not threads.skip_setup:
            torch.set_num_threads(len(threads.cpu_lists[0]))
        torch.Generator = CpuGenerator
        super()._init_executor()


class CpuGenerator(torch.Generator):
    """What a request with a `seed` samples with.

    After each part of a long prompt vLLM takes the draw back by CUDA's offset. A CPU's generator has none, and raises,
    which ended the engine. Nothing that is kept was drawn before (but by a request that was preempted): it begins
    again, and the same seed gives the same reply, however many parts its prompt had.
    """

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> None:
        self.manual_seed(self.initial_seed())
