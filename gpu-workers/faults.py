"""Puts a fault at a named place of a train step, for tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trialgate_gpu.objectives import OBJECTIVES
from trialgate_gpu.objectives.grpo import GRPO
from trialgate_gpu.policy import Policy

INF, NAN = float("inf"), float("nan")


def inject(patch: pytest.MonkeyPatch, place: str) -> None:
    """Makes `memory` run out, or puts a value that is not finite into another `place`. Ignores unknown places."""
    if place == "loss":

        def poisoned(*arguments):
            found = GRPO.losses(*arguments)
            return found._replace(loss=found.loss * NAN)

        patch.setitem(OBJECTIVES, "grpo", replace(GRPO, losses=poisoned))
    if place == "gradient":
        plain = Policy.start_gradient

        def start(self):
            gradient = plain(self)
            gradient[7] = INF
            return gradient

        patch.setattr(Policy, "start_gradient", start)
    if place == "weight":
        step = torch.optim.AdamW.step

        def broken(self):
            step(self)
            self.param_groups[0]["params"][0].data[11] = NAN

        patch.setattr(torch.optim.AdamW, "step", broken)
    if place == "canary":
        refresh = Policy.refresh

        def rounded(self):
            refresh(self)
            if self.gradient is not None:
                self.compute[3] = NAN

        patch.setattr(Policy, "refresh", rounded)
    if place == "memory":
        patch.setattr(Policy, "start_gradient", lambda self: torch.empty(1 << 60))
