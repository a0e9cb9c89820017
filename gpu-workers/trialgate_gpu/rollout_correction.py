"""Corrects for the difference between the engine that sampled a token and the weights that a step starts from.

An objective's clip bounds how far a step goes from its starting weights (`old_logprobs`). Importance sampling corrects
for the other weights and the other implementation that sampled the token (`rollout_logprobs`): decoupled PPO (arXiv
2110.00641), AReaL (arXiv 2505.24298). Every batch is corrected, stale or not, because an engine also rounds differently
from the trainer. The names are those of verl's `rollout_corr_helper.py`.

`rollout_is` weighs a token by exp(old_logprobs - rollout_logprobs), or by its product over the sequence, at most
`rollout_is_threshold`: truncated importance sampling, TRL's `vllm_importance_sampling_mode: token_truncate` and
`sequence_truncate`. `rollout_rs` leaves out what is outside a band: single tokens (`token_k1`, IcePop) or sequences
by their geometric mean (`seq_mean_k1`). What is left out still counts in the normalizer of the loss.
"""

from __future__ import annotations

import torch

from .objectives.objective import MAX_LOG_RATIO, Tokens, ratio_of
from .settings import TrainerSettings


def needs_sequences(settings: TrainerSettings) -> bool:
    return settings.rollout_is == "sequence" or settings.rollout_rs == "seq_mean_k1"


def importance_weight(tokens: Tokens, rollout_logprobs: torch.Tensor, settings: TrainerSettings) -> torch.Tensor:
    """Returns [tokens], at most the threshold, and exactly 1 where trainer and engine agree."""
    log_ratio = tokens.old_logprobs - rollout_logprobs
    if settings.rollout_is == "none":
        return torch.ones_like(log_ratio)
    if settings.rollout_is == "sequence":
        log_ratio = tokens.sum_over_sequence(log_ratio)
    return ratio_of(log_ratio).clamp(max=settings.rollout_is_threshold)


def keep_mask(tokens: Tokens, rollout_logprobs: torch.Tensor, settings: TrainerSettings) -> torch.Tensor:
    """Returns [tokens], bool: True where `rollout_rs` keeps the token."""
    log_ratio = tokens.old_logprobs - rollout_logprobs
    if settings.rollout_rs is None:
        return torch.ones_like(log_ratio, dtype=torch.bool)
    if settings.rollout_rs == "seq_mean_k1":
        log_ratio = tokens.mean_over_sequence(log_ratio)
    low, high = settings.rollout_rs_threshold
    ratio = ratio_of(log_ratio)
    return (ratio >= low) & (ratio <= high)


def correction(tokens: Tokens, rollout_logprobs: torch.Tensor, settings: TrainerSettings) -> torch.Tensor:
    """Returns [tokens]: the factor of each token's loss. It has no gradient."""
    return importance_weight(tokens, rollout_logprobs, settings) * keep_mask(tokens, rollout_logprobs, settings)


def correction_metrics(tokens: Tokens, rollout_logprobs: torch.Tensor, settings: TrainerSettings) -> dict[str, float]:
    """Returns the gap between engine and trainer over whole sequences.

    `kl` (k1) and `k3_kl` estimate KL(rollout || old); `log_ratio_max` is the largest distance; the fractions are the
    tokens whose ratio is above the threshold or below its inverse.
    """
    weight = importance_weight(tokens, rollout_logprobs, settings).double()
    log_ratio = tokens.old_logprobs.double() - rollout_logprobs.double()
    bounded = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    high = bounded.exp() > settings.rollout_is_threshold
    low = bounded.exp() < 1 / settings.rollout_is_threshold
    measured = {
        "rollout_is_mean": weight.mean(),
        "rollout_is_max": weight.max(),
        "rollout_is_min": weight.min(),
        "rollout_is_eff_sample_size": weight.mean().square() / weight.square().mean(),
        "rollout_is_ratio_fraction_high": high.double().mean(),
        "rollout_is_ratio_fraction_low": low.double().mean(),
        "rollout_rs_masked_fraction": 1 - keep_mask(tokens, rollout_logprobs, settings).double().mean(),
        "kl": -log_ratio.mean(),
        "k3_kl": (bounded.exp() - 1 - bounded).mean(),
        "log_ratio_max": log_ratio.abs().max(),
    }
    return {f"rollout_corr/{name}": float(value) for name, value in measured.items()}
