"""Says which rank of how many this process is, and how ranks exchange small values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ..errors import GpuWorkerError
from .waiting import Waiting

T = TypeVar("T")
# The longest time that a rank waits for the others in one exchange. A rank that is silent is found much sooner.
PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class World:
    """All ranks run the same functions in the same order. With size 1 nothing is exchanged.

    `saving` has the ranks' own group for what is written while the next step runs. `waiting` measures exchanges.
    """

    rank: int = 0
    size: int = 1
    saving: dist.ProcessGroup | None = None
    waiting: Waiting = field(default_factory=Waiting, compare=False)
    # On a GPU, exchanges within a pass are only queued by the host, which does not see how long they take.
    waits_on_host: bool = True

    def sums(self, values: Sequence[float]) -> list[float]:
        """Returns the sum of each value over all ranks, the same bits on each."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        with self.waiting.timed():
            dist.all_reduce(total)
        return total.tolist()

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all ranks, by rank."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with self.waiting.timed():
            dist.all_gather_object(found, value)
        return found

    def of_first(self, value: Any) -> Any:
        """Returns the value of rank 0."""
        return self.gather(value)[0]

    def ask_first(self, find: Callable[[], T]) -> T:
        """Returns what `find` gives rank 0, or raises its `GpuWorkerError` on all ranks.

        On storage that several hosts share, ranks that look by themselves may see different files.
        """
        return self.of_first(self.together(lambda: find() if self.rank == 0 else None))

    def together(self, work: Callable[[], T]) -> T:
        """Returns what `work` gives this rank, or raises the `GpuWorkerError` of any rank on all ranks.

        A rank that raised alone would leave the others waiting for it.
        """
        found, error = None, None
        try:
            found = work()
        except GpuWorkerError as raised:
            error = (raised.kind, str(raised), raised.retryable)
        for each in self.gather(error):
            if each is not None:
                kind, message, retryable = each
                raise GpuWorkerError(kind, message, retryable=retryable)
        return found

    def wait(self) -> None:
        """Waits until all ranks are here."""
        self.gather(None)


def join_world(rank: int, size: int, device: torch.device, *, sharded: bool = False) -> World:
    """Joins the ranks of `torch.distributed.run`. Values on a CPU are exchanged by gloo, those on a GPU by NCCL.

    A single rank needs a group only where its model is held as sharded ones are.
    """
    if size == 1 and not sharded:
        return World()
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=PATIENCE)
    saving = dist.new_group(backend="gloo", timeout=PATIENCE)
    return World(rank, size, saving, waits_on_host=device.type == "cpu")
