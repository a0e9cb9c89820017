"""Chooses what carries out a request."""

from __future__ import annotations

from ..group.backend import LocalBackend
from .backend import Json, TrainerBackend
from .tinker.backend import TinkerBackend


class Backends:
    """A server when a request's settings name one, else this deployment's own group of ranks."""

    def __init__(self, local: LocalBackend) -> None:
        self.local = local
        self.tinker = TinkerBackend()

    def of(self, settings: Json) -> TrainerBackend:
        return self.tinker if settings.get("trainer_server") else self.local

    async def end(self) -> None:
        await self.local.end()
        await self.tinker.end()
