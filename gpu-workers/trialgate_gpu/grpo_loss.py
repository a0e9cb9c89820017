"""GRPO: group-normalised advantages and the clipped policy-gradient loss.

References: GRPO, DeepSeekMath (arXiv 2402.03300, eq. 3); clipping, PPO (arXiv 1707.06347, eq. 7); asymmetric clip
range and `token-mean`, DAPO (arXiv 2503.14476); no division by the standard deviation and `seq-mean-token-sum-norm`,
Dr. GRPO (arXiv 2503.20783).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import torch

from .batch import Sample
from .errors import GpuWorkerError, NotFiniteError

ADVANTAGE_EPS = 1e-6
MAX_LOG_RATIO = 20.0


def _weighted(rewards: dict[str, float], weights: dict[str, float] | None) -> float:
    return sum(value * (weights or {}).get(name, 1.0) for name, value in rewards.items())


def trial_rewards(samples: list[Sample], weights: dict[str, float] | None) -> dict[str, float]:
    """A trial's reward: the weighted sum of its named rewards; a name without a weight counts 1."""
    rewards: dict[str, float] = {}
    for sample in samples:
        reward = _weighted(sample.rewards, weights)
        if rewards.setdefault(sample.trial_id, reward) != reward:
            raise GpuWorkerError(
                "BadBatch", f"trial {sample.trial_id} has two different rewards; assemble the batch again"
            )
    return rewards


def companion_rewards(samples: list[Sample], weights: dict[str, float] | None) -> dict[str, list[float]]:
    """By group, the rewards of its trials that an earlier batch trained."""
    companions: dict[str, list[float]] = {}
    for sample in samples:
        found = [_weighted(companion, weights) for companion in sample.companions]
        if companions.setdefault(sample.group_id, found) != found:
            raise GpuWorkerError(
                "BadBatch", f"group {sample.group_id} has two different lists of companions; assemble the batch again"
            )
    return companions


def advantages(
    samples: list[Sample], rewards: dict[str, float], companions: dict[str, list[float]], norm_by_std: bool
) -> np.ndarray:
    """[samples]. A trial's advantage is (r - mean) / (std + eps) over the trials of its group, whatever its number of
    samples. Trials of the group that an earlier batch trained count in the mean and the deviation.

    The standard deviation is the unbiased one, as in verl and TRL. A group of one trial, or without spread, has
    advantage 0. Raises `NotFiniteError` when an advantage is no finite float32, in which the loss is computed.
    """
    trials_of_group: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        if sample.trial_id not in trials_of_group[sample.group_id]:
            trials_of_group[sample.group_id].append(sample.trial_id)
    advantage: dict[tuple[str, str], float] = {}
    for group, trials in trials_of_group.items():
        values = np.array([rewards[t] for t in trials] + companions[group])
        with np.errstate(over="ignore", invalid="ignore"):
            centred = values - values.mean()
            if len(values) < 2 or values.max() == values.min():
                centred = np.zeros_like(values)
            elif norm_by_std:
                deviation = values.std(ddof=1)
                if not np.isfinite(deviation):
                    raise NotFiniteError(f"the deviation of the rewards of group {group} is {deviation}")
                centred = centred / (deviation + ADVANTAGE_EPS)
            if not (np.isfinite(values) & np.isfinite(centred.astype(np.float32))).all():
                raise NotFiniteError(f"a reward or advantage of group {group} is not finite or too large")
        advantage |= {(group, trial): float(a) for trial, a in zip(trials, centred[: len(trials)], strict=True)}
    return np.array([advantage[s.group_id, s.trial_id] for s in samples])


def token_weights(samples: list[Sample], mode: str, scale: float | None) -> np.ndarray:
    """[samples]: what one trained token of each sample weighs in the loss of the mini-batch that `samples` are.

    The loss is then a plain weighted sum over tokens, so that packs can be summed one by one and samples without
    advantage left out, with the normaliser still that of the whole mini-batch.
    """
    counts = np.array([s.trained_tokens for s in samples], dtype=np.float64)
    if mode == "token-mean":
        return np.full(len(samples), 1.0 / counts.sum())
    if mode == "seq-mean-token-mean":
        return 1.0 / (counts * len(samples))
    if mode == "seq-mean-token-sum-norm":
        return np.full(len(samples), 1.0 / (len(samples) * (scale or counts.max())))
    raise GpuWorkerError("BadSettings", f"unknown loss_agg_mode {mode!r}")


class TokenLoss(NamedTuple):
    """Per token: the loss, its derivative by the token's log-probability, and whether the clip cut it."""

    loss: torch.Tensor
    d_logprob: torch.Tensor
    clipped: torch.Tensor


def clipped_loss(
    logprob: torch.Tensor, proximal: torch.Tensor, advantage: torch.Tensor, low: float, high: float
) -> TokenLoss:
    """max(-A r, -A clip(r, 1 - low, 1 + high)) with r = exp(logprob - proximal); all arguments [tokens], float32."""
    log_ratio = (logprob - proximal).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    plain = -advantage * ratio
    cut = -advantage * ratio.clamp(1.0 - low, 1.0 + high)
    clipped = cut > plain
    return TokenLoss(torch.maximum(plain, cut), torch.where(clipped, 0.0, plain), clipped)


def truncated_weight(proximal: torch.Tensor, recorded: torch.Tensor, threshold: float) -> torch.Tensor:
    """min(exp(proximal - recorded), threshold): what a token's loss is weighted with, exactly 1 where both are equal.

    Clipping bounds how far a step goes from its starting weights (`proximal`); that an older policy sampled the token
    (`recorded`) is a matter of importance sampling. One ratio for both would clip by how old a token is: see decoupled
    PPO (arXiv 2110.00641) and AReaL (arXiv 2505.24298), which masks what exceeds its cap. Truncation as here bounds the
    variance and drops no token: TIS (https://fengyao.notion.site/off-policy-rl), verl's `rollout_is: token` with
    `rollout_is_threshold`, TRL's `vllm_importance_sampling_cap`. The weight has no gradient.
    """
    return (proximal - recorded).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=threshold)
