"""GRPO (DeepSeekMath, arXiv 2402.03300, eq. 3), with the settings of DAPO and Dr. GRPO.

DAPO (arXiv 2503.14476): `clip_ratio_high: 0.28` and `filter_groups`; its `token-mean` is the default here.
Dr. GRPO (arXiv 2503.20783): `norm_adv_by_std_in_grpo: false` and `loss_agg_mode: seq-mean-token-sum-norm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from .baselines import group_mean
from .objective import Objective, TokenLosses, Tokens, clipped_losses, ratio_of

if TYPE_CHECKING:
    from ..settings import TrainerSettings


def advantages(returns: np.ndarray, settings: TrainerSettings) -> np.ndarray:
    return group_mean(returns, settings.norm_adv_by_std_in_grpo)


def losses(logprob: torch.Tensor, tokens: Tokens, settings: TrainerSettings) -> TokenLosses:
    return clipped_losses(ratio_of(logprob - tokens.old_logprobs), tokens.advantage, settings)


GRPO = Objective(
    "grpo",
    {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "loss_agg_mode": "token-mean"},
    advantages,
    losses,
)
