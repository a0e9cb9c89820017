"""Compares a trial's reward with those of the other trials of its group. Arrays are [trials of a group]."""

from __future__ import annotations

import numpy as np

EPS = 1e-6


def has_spread(rewards: np.ndarray) -> bool:
    """Compares without arithmetic, so that equal rewards have no spread despite rounding."""
    return len(rewards) > 1 and bool(rewards.max() != rewards.min())


def group_mean(rewards: np.ndarray, divide_by_std: bool) -> np.ndarray:
    """Returns (r - mean) / (std + eps). The deviation is the unbiased one, as in verl and TRL."""
    if not has_spread(rewards):
        return np.zeros_like(rewards)
    centred = rewards - rewards.mean()
    return centred / (rewards.std(ddof=1) + EPS) if divide_by_std else centred


def leave_one_out(rewards: np.ndarray) -> np.ndarray:
    """Returns a trial's reward minus the mean of the others."""
    if not has_spread(rewards):
        return np.zeros_like(rewards)
    return (rewards - rewards.mean()) * (len(rewards) / (len(rewards) - 1))
