"""Compares a trial's returns with those of the other trials of its group. Arrays are [turns, trials of a group]."""

from __future__ import annotations

import numpy as np

EPS = 1e-6


def has_spread(returns: np.ndarray) -> np.ndarray:
    """Returns [turns, 1]: True where returns differ. Compares without arithmetic, so rounding adds no spread."""
    return returns.max(-1, keepdims=True) != returns.min(-1, keepdims=True)


def _centered(returns: np.ndarray) -> np.ndarray:
    return np.where(has_spread(returns), returns - returns.mean(-1, keepdims=True), 0.0)


def group_mean(returns: np.ndarray, divide_by_std: bool) -> np.ndarray:
    """Returns (G - mean) / (std + eps). The deviation is the unbiased one, as in verl and TRL.

    It is the largest deviation of the group's turns and divides all of them, so that a turn after which little can
    still be earned does not weigh as much as one that decides everything.
    """
    centered = _centered(returns)
    if not divide_by_std or not centered.any():
        return centered
    return centered / (returns.std(-1, ddof=1).max() + EPS)


def leave_one_out(returns: np.ndarray) -> np.ndarray:
    """Returns a trial's return minus the mean of the others'."""
    count = returns.shape[-1]
    return _centered(returns) * (count / max(count - 1, 1))
