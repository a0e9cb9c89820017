"""Defines the contract of a trainer backend. `conformance_test.py` has its rules as tests."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any

from ..progress import Progress
from ..turn import turn

Json = dict[str, Any]


class TrainerBackend(ABC):
    """Makes version 0 and each next version of a run, one at a time.

    Both methods take and return what `core/gpu-contract.ts` describes, and obey the same rules:

    - The same parent, batch and settings give the same step key, and a step whose checkpoint is finished is not done
      again: the result is that of the first time with `reused`. `skipped` steps count as finished.
    - A checkpoint folder appears whole, by one rename, or not at all. An attempt that fails, is cancelled or is killed
      changes nothing that a later attempt starts from: the next one starts from the parent and gives the same weights.
    - `progress.show` says what is being done, at least at every phase. `Cancelled` is raised within seconds of
      `progress.cancel()`.
    - What only a person or another input can repair is a `GpuWorkerError` with `retryable` False; its message says
      what to do.
    """

    name: str

    def __init__(self) -> None:
        self._using: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load_base(self, request: Json, progress: Progress) -> Json:
        return await self._in_turn("loadBase", request, progress)

    async def train_step(self, request: Json, progress: Progress) -> Json:
        return await self._in_turn("trainStep", request, progress)

    async def _in_turn(self, name: str, request: Json, progress: Progress) -> Json:
        async with turn(self._using[self.place_of(request)], progress, "waiting for another step"):
            return await self.call(name, request, progress)

    def place_of(self, request: Json) -> str:
        """Returns what one step at a time may use."""
        return self.name

    @abstractmethod
    async def call(self, name: str, request: Json, progress: Progress) -> Json:
        """Carries out `loadBase` or `trainStep`."""

    @abstractmethod
    async def end(self) -> None:
        """Releases what it holds."""
