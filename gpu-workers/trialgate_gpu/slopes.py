"""Gives the slope of a step's loss for each token's log-probability. It is all that a backward pass needs to know."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .objectives import OBJECTIVES
from .objectives.objective import Tokens
from .rollout_correction import correction
from .settings import TrainerSettings


class Slopes(NamedTuple):
    """`slope` is [tokens]. The others are sums over the tokens: `kl` of the log-ratio to the old weights."""

    slope: torch.Tensor
    loss: float
    clipped: float
    kl: float


def slopes_of(
    logprobs: torch.Tensor,
    tokens: Tokens,
    share: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    settings: TrainerSettings,
) -> Slopes:
    """`share` is the weight of each token in the loss (`token_shares.py`). All tensors are [tokens]."""
    weight = share * correction(tokens, rollout_logprobs, settings)
    with torch.enable_grad():
        leaf = logprobs.detach().requires_grad_()
        losses = OBJECTIVES[settings.objective].losses(leaf, tokens, settings)
        loss = (losses.loss * weight).sum()
        (slope,) = torch.autograd.grad(loss, leaf)
    return Slopes(
        slope, float(loss.detach()), float(losses.clipped.sum()), float((tokens.old_logprobs - logprobs).sum())
    )
