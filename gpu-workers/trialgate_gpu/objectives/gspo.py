"""GSPO (arXiv 2507.18071, eq. 5 to 7): the ratio of a sequence is the geometric mean of its tokens' ratios.

verl's `loss_mode: gspo`, TRL's `importance_sampling_level: sequence`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .grpo import advantages
from .objective import Objective, TokenLosses, Tokens, clipped_losses, ratio_of

if TYPE_CHECKING:
    from ..settings import TrainerSettings


def losses(logprob: torch.Tensor, tokens: Tokens, settings: TrainerSettings) -> TokenLosses:
    log_ratio = tokens.mean_over_sequence(logprob - tokens.old_logprobs)
    return clipped_losses(ratio_of(log_ratio), tokens.advantage, settings)


GSPO = Objective(
    "gspo",
    {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4, "loss_agg_mode": "seq-mean-token-mean"},
    advantages,
    losses,
    by_sequence=True,
)
