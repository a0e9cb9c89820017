"""Defines an objective: the advantages of a group's trials, and a loss for each trained token.

An objective only states its loss; autograd computes the slope of each log-probability. The trainer multiplies each
token's loss by the token's share in the mini-batch (`token_shares.py`) and by the correction for the engine's sampling
(`rollout_correction.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from ..settings import TrainerSettings

MAX_LOG_RATIO = 20.0


@dataclass(frozen=True)
class Tokens:
    """The trained tokens. All tensors are [tokens].

    `old_logprobs` are the log-probabilities under the step's starting weights. `sequence` is the number of the token's
    sequence; only for objectives `by_sequence` are sequences complete here.
    """

    advantage: torch.Tensor
    old_logprobs: torch.Tensor
    sequence: torch.Tensor

    def sum_over_sequence(self, values: torch.Tensor) -> torch.Tensor:
        """Returns [tokens]: for each token, the sum of `values` over its sequence."""
        count = int(self.sequence.max()) + 1
        total = torch.zeros(count, dtype=values.dtype, device=values.device).index_add(0, self.sequence, values)
        return total[self.sequence]

    def mean_over_sequence(self, values: torch.Tensor) -> torch.Tensor:
        return self.sum_over_sequence(values) / self.sum_over_sequence(torch.ones_like(values))


class TokenLosses(NamedTuple):
    """The loss, and True where a clip removed the token's gradient. Both are [tokens]."""

    loss: torch.Tensor
    clipped: torch.Tensor


@dataclass(frozen=True)
class Objective:
    """`defaults` has the paper's values for the settings that a run file leaves open.

    `advantages(returns [turns, trials of a group], settings)` returns the advantage of each turn of each trial;
    `losses(logprob [tokens], tokens, settings)` returns the loss of each token.
    """

    name: str
    defaults: dict[str, Any]
    advantages: Callable[[np.ndarray, TrainerSettings], np.ndarray]
    losses: Callable[[torch.Tensor, Tokens, TrainerSettings], TokenLosses]
    by_sequence: bool = False


def ratio_of(log_ratio: torch.Tensor) -> torch.Tensor:
    """Returns exp(log_ratio) without overflow. Beyond the bound it is constant and has no slope."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def clipped_losses(ratio: torch.Tensor, advantage: torch.Tensor, settings: TrainerSettings) -> TokenLosses:
    """Returns max(-A r, -A clip(r, 1 - low, 1 + high)), for A < 0 at most -A c: PPO's clip and dual clip.

    References: PPO (arXiv 1707.06347, eq. 7); dual clip (arXiv 1912.09729, eq. 5): verl's `clip_ratio_c`, TRL's
    `delta`.
    """
    plain = -advantage * ratio
    cut = -advantage * ratio.clamp(1.0 - settings.clip_ratio_low, 1.0 + settings.clip_ratio_high)
    loss = torch.maximum(plain, cut)
    most = -advantage * settings.clip_ratio_c
    capped = (advantage < 0) & (loss > most)
    return TokenLosses(torch.where(capped, most, loss), (cut > plain) | capped)
