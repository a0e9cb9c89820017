"""A rank for tests, with a fault in each of its first train steps (`faults.py`, by the names in TRIALGATE_FAULTS)."""

from __future__ import annotations

import argparse
import os
from typing import Any

import pytest
import torch

from faults import NAN, inject
from trialgate_gpu.group import rank
from trialgate_gpu.group.world import World
from trialgate_gpu.progress import Progress
from trialgate_gpu.train_step import Trainer


class FaultyTrainer(Trainer):
    """Injects the next fault into each train step. With `result` the step succeeds with a metric that is NaN."""

    def __init__(self, device: torch.device, faults: list[str]) -> None:
        super().__init__(device, 64)
        self.faults = faults

    def train_step(self, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        fault = self.faults.pop(0) if self.faults else "none"
        with pytest.MonkeyPatch.context() as patch:
            inject(patch, fault)
            made = super().train_step(request, progress)
        return made | {"metrics": {"actor/pg_loss": NAN}} if fault == "result" else made


def make(device: torch.device, _arguments: argparse.Namespace, _world: World) -> Trainer:
    return FaultyTrainer(device, os.environ["TRIALGATE_FAULTS"].split(","))


if __name__ == "__main__":
    rank.main(make)
