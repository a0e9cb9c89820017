"""Executes vLLM on CPUs: `--distributed-executor-backend trialgate_gpu.vllm_executor.InProcessExecutor`.

vLLM 0.32 runs the model on a CPU in a second process, so that it can set OpenMP's threads before they exist. The two
processes then wait for each other in busy loops, on the cores that agents, sandboxes and Temporal need. In one process
nothing spins, and the engine starts sooner because its imports run once.
"""

from __future__ import annotations

import torch
from vllm.utils.ompmultiprocessing import OMPProcessManager
from vllm.v1.executor.uniproc_executor import UniProcExecutor


class InProcessExecutor(UniProcExecutor):
    """Runs the model in the scheduler's process, on as many threads as vLLM would give to the second process."""

    def _init_executor(self) -> None:
        threads = OMPProcessManager(self.vllm_config)
        if not threads.skip_setup:
            torch.set_num_threads(len(threads.cpu_lists[0]))
        torch.Generator = CpuGenerator
        super()._init_executor()


class CpuGenerator(torch.Generator):
    """Generates the random numbers of a request with a `seed`.

    After each part of a long prompt vLLM discards the draw by setting CUDA's generator offset. A CPU's generator has no
    offset and raises, which would end the engine. Before the first sampled token nothing that was drawn is kept, so
    this generator starts again from the seed: the same seed gives the same reply, however many parts the prompt had.
    Only a preempted request draws again what it had drawn.
    """

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> None:
        self.manual_seed(self.initial_seed())
