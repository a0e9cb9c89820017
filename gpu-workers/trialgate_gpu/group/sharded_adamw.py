"""Runs AdamW over this rank's parts of the weights."""

from __future__ import annotations

import math

import torch

from ..errors import NotFiniteError
from ..optimizer import norm_of
from ..settings import Optim
from .sharded_policy import ShardedPolicy
from .world import World


class ShardedAdamW:
    """Does what `FlatAdamW` does, on the parts of one rank. Each rank calls `step` with the same settings."""

    def __init__(self, policy: ShardedPolicy, world: World) -> None:
        self.policy, self.world = policy, world
        self.leaves = {name: torch.nn.Parameter(part) for name, part in policy.master.items()}
        self.adamw = torch.optim.AdamW(list(self.leaves.values()), fused=True)

    @property
    def steps(self) -> int:
        return int(next((state["step"].item() for state in self.adamw.state.values()), 0))

    def moments(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] | None:
        """Returns exp_avg and exp_avg_sq of each part, None before the first step."""
        if not self.adamw.state:
            return None
        states = {name: self.adamw.state[leaf] for name, leaf in self.leaves.items()}
        return tuple({name: state[key] for name, state in states.items()} for key in ("exp_avg", "exp_avg_sq"))

    def restore(self, steps: int, exp_avg: dict[str, torch.Tensor], exp_avg_sq: dict[str, torch.Tensor]) -> None:
        for name, leaf in self.leaves.items():
            step = torch.tensor(float(steps), device=leaf.device)
            self.adamw.state[leaf] = {"step": step, "exp_avg": exp_avg[name], "exp_avg_sq": exp_avg_sq[name]}

    def step(self, _gradient: None, settings: Optim) -> float:
        """Clips the gradient to the settings' norm, updates the weights, returns the norm before clipping.

        Raises `NotFiniteError` on every rank before the update when the norm is not finite, and after it when a weight
        or moment of any rank is not.
        """
        gradients = self.policy.gradients()
        norm = math.sqrt(self.world.sums([norm_of(gradients.values()) ** 2])[0])
        if not math.isfinite(norm):
            raise NotFiniteError(f"the norm of the gradient is {norm}")
        if norm > settings.clip_grad > 0:
            for each in gradients.values():
                each.mul_(settings.clip_grad / (norm + 1e-6))
        for group in self.adamw.param_groups:
            group |= {"lr": settings.lr, "betas": settings.betas, "eps": settings.eps, "weight_decay": 0.0}
        decayed = self.policy.decayed()
        if settings.weight_decay and decayed:
            torch._foreach_mul_(decayed, 1.0 - settings.lr * settings.weight_decay)
        for name, leaf in self.leaves.items():
            leaf.grad = gradients[name]
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        self._require_finite()
        return norm

    def _require_finite(self) -> None:
        kinds = [("a weight", self.policy.master), *(("a moment of AdamW", each) for each in self.moments() or ())]
        bad = [sum(not bool(part.isfinite().all()) for part in parts.values()) for _, parts in kinds]
        for (what, _), count in zip(kinds, self.world.sums(bad), strict=True):
            if count:
                raise NotFiniteError(f"{what} is not finite")
