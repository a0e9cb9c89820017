"""Computes the advantages of trials from their rewards."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from .batch import Sample
from .errors import GpuWorkerError, NotFiniteError
from .objectives import OBJECTIVES
from .settings import TrainerSettings


def _weighted(rewards: dict[str, float], weights: dict[str, float] | None) -> float:
    return sum(value * (weights or {}).get(name, 1.0) for name, value in rewards.items())


def trial_rewards(samples: list[Sample], weights: dict[str, float] | None) -> dict[str, float]:
    """Returns a trial's reward: the weighted sum of its named rewards. A name without a weight counts 1."""
    rewards: dict[str, float] = {}
    for sample in samples:
        reward = _weighted(sample.rewards, weights)
        if rewards.setdefault(sample.trial_id, reward) != reward:
            raise GpuWorkerError(
                "BadBatch", f"trial {sample.trial_id} has two different rewards; assemble the batch again"
            )
    return rewards


def companion_rewards(samples: list[Sample], weights: dict[str, float] | None) -> dict[str, list[float]]:
    """Returns, by group, the rewards of its scored trials that have no sample in this batch."""
    companions: dict[str, list[float]] = {}
    for sample in samples:
        found = [_weighted(companion, weights) for companion in sample.companions]
        if companions.setdefault(sample.group_id, found) != found:
            raise GpuWorkerError(
                "BadBatch", f"group {sample.group_id} has two different lists of companions; assemble the batch again"
            )
    return companions


def advantages(
    samples: list[Sample], rewards: dict[str, float], companions: dict[str, list[float]], settings: TrainerSettings
) -> np.ndarray:
    """Returns [samples]. A trial has one advantage, whatever its number of samples. Companions count in the baseline.

    Raises `NotFiniteError` when an advantage is no finite float32, in which the loss is computed.
    """
    trials_of_group: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        if sample.trial_id not in trials_of_group[sample.group_id]:
            trials_of_group[sample.group_id].append(sample.trial_id)
    advantage: dict[tuple[str, str], float] = {}
    for group, trials in trials_of_group.items():
        values = np.array([rewards[t] for t in trials] + companions[group])
        with np.errstate(over="ignore", invalid="ignore"):
            found = OBJECTIVES[settings.objective].advantages(values, settings)
            finite = np.isfinite(values) & np.isfinite(found.astype(np.float32))
        # A deviation that overflowed gives advantages of 0 although the rewards differ.
        if not finite.all() or (values.max() != values.min() and not found.any()):
            raise NotFiniteError(f"a reward or advantage of group {group} is not finite or too large")
        advantage |= {(group, trial): float(a) for trial, a in zip(trials, found[: len(trials)], strict=True)}
    return np.array([advantage[s.group_id, s.trial_id] for s in samples])
