"""Measures how long a rank is in exchanges with the others: while they are late, and while data moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter


class Waiting:
    """Adds up the seconds. An exchange on a GPU is only queued here, so its time is not in them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start

    def watch(self, module: FSDPModule) -> None:
        """Adds the exchanges of a sharded module's weights and gradients."""
        module.set_custom_all_gather(_AllGather(self))
        module.set_custom_reduce_scatter(_ReduceScatter(self))


class _AllGather(DefaultAllGather):
    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    def __call__(self, *given: Any, **named: Any) -> dist.Work | None:
        with self.waiting.timed():
            return super().__call__(*given, **named)


class _ReduceScatter(DefaultReduceScatter):
    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    def __call__(self, *given: Any, **named: Any) -> dist.Work:
        with self.waiting.timed():
            return super().__call__(*given, **named)
