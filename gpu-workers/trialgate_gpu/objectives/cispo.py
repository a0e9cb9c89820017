"""CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5): the clipped ratio is a weight without a gradient.

A clipped token keeps a gradient. verl's `loss_mode: cispo`; TRL's `loss_type: cispo`, whose `epsilon_high` is
1 + `clip_ratio_high`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .grpo import advantages
from .objective import Objective, TokenLosses, Tokens, ratio_of

if TYPE_CHECKING:
    from ..settings import TrainerSettings


def losses(logprob: torch.Tensor, tokens: Tokens, settings: TrainerSettings) -> TokenLosses:
    ratio = ratio_of(logprob - tokens.old_logprobs).detach()
    weight = ratio.clamp(1.0 - settings.clip_ratio_low, 1.0 + settings.clip_ratio_high)
    return TokenLosses(-tokens.advantage * weight * logprob, torch.zeros_like(ratio, dtype=torch.bool))


CISPO = Objective(
    "cispo",
    {"clip_ratio_low": 1.0, "clip_ratio_high": 4.0, "loss_agg_mode": "token-mean"},
    advantages,
    losses,
)
