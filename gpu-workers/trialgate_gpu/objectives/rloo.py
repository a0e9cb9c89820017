"""RLOO (arXiv 2402.14740): a trial's baseline is the mean of the other trials of its group.

It is verl's `adv_estimator: rloo`. Tokens are summed, not averaged, so that a step from the starting weights is
REINFORCE with that baseline, times a constant. Later updates are clipped token by token as in GRPO; TRL's `RLOOTrainer`
clips whole sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .baselines import leave_one_out
from .grpo import losses
from .objective import Objective

if TYPE_CHECKING:
    from ..settings import TrainerSettings


def advantages(returns: np.ndarray, settings: TrainerSettings) -> np.ndarray:
    return leave_one_out(returns)


RLOO = Objective(
    "rloo",
    {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "loss_agg_mode": "seq-mean-token-sum-norm"},
    advantages,
    losses,
)
