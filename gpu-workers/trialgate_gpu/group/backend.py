"""Runs the steps of a deployment in one resident group of ranks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..backends.backend import Json, TrainerBackend
from ..checkpoint import remove_leftovers
from ..progress import Progress
from .controller import Group, GroupOptions


class LocalBackend(TrainerBackend):
    """The group starts with the first step."""

    name = "local"

    def __init__(self, options: GroupOptions) -> None:
        super().__init__()
        self.options = options
        self.group: Group | None = None

    async def call(self, name: str, request: Json, progress: Progress) -> Json:
        if self.group is None or self.group.ended:
            progress.show("start ranks", ranks=self.options.ranks)
            self.group = await Group.start(self.options, progress)
        try:
            return await self.group.call(name, request, progress)
        finally:
            if self.group.ended and "home" in request:
                # Removes what the killed ranks had begun to write.
                await asyncio.to_thread(remove_leftovers, Path(request["home"]) / "checkpoints")

    async def end(self) -> None:
        if self.group is not None:
            await self.group.end()
