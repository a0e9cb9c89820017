"""Runs AdamW over the flat master weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from .errors import NotFiniteError
from .settings import Optim


class FlatAdamW:
    """The moments are empty until the first step; then exp_avg and exp_avg_sq are flat like the weights.

    `decayed` are the views of `master` to which weight decay applies.
    """

    def __init__(self, master: torch.Tensor, decayed: list[torch.Tensor]) -> None:
        self.decayed = decayed
        self.parameter = torch.nn.Parameter(master)
        self.adamw = torch.optim.AdamW([self.parameter], fused=True)

    @property
    def steps(self) -> int:
        state = self.adamw.state.get(self.parameter)
        return int(state["step"].item()) if state else 0

    def moments(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        state = self.adamw.state.get(self.parameter)
        return (state["exp_avg"], state["exp_avg_sq"]) if state else None

    def restore(self, steps: int, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor) -> None:
        device = self.parameter.device
        step = torch.tensor(float(steps), device=device)
        self.adamw.state[self.parameter] = {
            "step": step,
            "exp_avg": exp_avg.to(device),
            "exp_avg_sq": exp_avg_sq.to(device),
        }

    def step(self, gradient: torch.Tensor, settings: Optim) -> float:
        """Clips `gradient` in place to the settings' norm, updates the weights, returns the norm before clipping.

        Raises `NotFiniteError` before the update when the norm is not finite, and after it when a weight or moment
        is not. The caller then loads the state again.
        """
        norm = norm_of([gradient])
        if not math.isfinite(norm):
            raise NotFiniteError(f"the norm of the gradient is {norm}")
        if norm > settings.clip_grad > 0:
            gradient.mul_(settings.clip_grad / (norm + 1e-6))
        group = self.adamw.param_groups[0]
        group |= {
            "lr": settings.lr,
            "betas": settings.betas,
            "eps": settings.eps,
            "weight_decay": 0.0,
        }
        if settings.weight_decay and self.decayed:
            torch._foreach_mul_(self.decayed, 1.0 - settings.lr * settings.weight_decay)
        self.parameter.grad = gradient
        self.adamw.step()
        self.parameter.grad = None
        require_finite(self.parameter.detach(), "a weight")
        for moment in self.moments() or ():
            require_finite(moment, "a moment of AdamW")
        return norm


def norm_of(tensors: Iterable[torch.Tensor]) -> float:
    """Returns the norm of all values, summed in float64: in float32 it would depend on how they are divided."""
    pieces = (piece for tensor in tensors for piece in tensor.reshape(-1).split(1 << 24))
    norms = [torch.linalg.vector_norm(piece, dtype=torch.float64) for piece in pieces]
    return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


def require_finite(values: torch.Tensor, what: str) -> None:
    """Raises `NotFiniteError` if a value is NaN or infinite. `aminmax` passes NaN on and needs no memory."""
    for extreme in torch.aminmax(values):
        if not math.isfinite(extreme):
            raise NotFiniteError(f"{what} is {float(extreme)}")
