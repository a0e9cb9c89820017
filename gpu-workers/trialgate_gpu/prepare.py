"""Prepares samples for the optimizer: advantages, token chains, and metrics of the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .advantages import advantages, companion_rewards, trial_rewards
from .batch import Sample
from .pack import Chain, chain
from .settings import TrainerSettings
from .teacher import teacher_advantages, teacher_metrics


@dataclass(frozen=True)
class PreparedBatch:
    """`staleness` [samples] and `chains` are in the order of `samples`.

    A sample's staleness is the step's starting version minus the oldest version that sampled a trained token of it.
    """

    samples: list[Sample]
    staleness: np.ndarray
    chains: list[Chain]
    metrics: dict[str, float]

    @property
    def learned(self) -> list[Chain]:
        """Returns the chains that have a gradient: those with an advantage that is not 0."""
        return [c for c in self.chains if c.advantages.any()]


def prepare(samples: list[Sample], settings: TrainerSettings, parent_version: int) -> PreparedBatch:
    rewards = trial_rewards(samples, settings.reward_weights)
    companions = companion_rewards(samples, settings.reward_weights)
    adv = advantages(samples, rewards, companions, settings)
    if settings.teacher:
        adv = [a + teacher_advantages(s, settings.teacher) for a, s in zip(adv, samples, strict=True)]
    staleness = np.array([parent_version - int(s.trained_versions.min()) for s in samples])
    chains = [
        chain(i, s.token_ids, s.loss_mask, s.rollout_logprobs, s.temperature, s.sampling_mask, adv[i])
        for i, s in enumerate(samples)
    ]
    stale_tokens = sum(int((s.trained_versions < parent_version).sum()) for s in samples)
    metrics = batch_metrics(samples, rewards, companions, adv)
    if settings.teacher:
        metrics |= teacher_metrics(samples, settings.teacher)
    metrics |= {
        "staleness/mean": float(staleness.mean()),
        "staleness/max": int(staleness.max()),
        "tokens/stale": stale_tokens,
    }
    return PreparedBatch(samples, staleness, chains, metrics)


def batch_metrics(
    samples: list[Sample], rewards: dict[str, float], companions: dict[str, list[float]], adv: list[np.ndarray]
) -> dict[str, float]:
    """Returns metrics with the names of verl and TRL. Rewards are those of this batch's own trials."""
    values = np.array(list(rewards.values()))
    lengths = np.array([s.trained_tokens for s in samples])
    group_of_trial = {s.trial_id: s.group_id for s in samples}
    groups: dict[str, list[float]] = {}
    for trial, group in group_of_trial.items():
        groups.setdefault(group, []).append(rewards[trial])
    flat = [g for group, own in groups.items() if max(g := own + companions[group]) == min(g)]
    return {
        "train/reward_mean": float(values.mean()),
        "train/reward_median": float(np.median(values)),
        "train/reward_std": float(values.std()),
        "train/groups": len(groups),
        "train/groups_without_spread": len(flat),
        "train/trials": len(rewards),
        "train/companions": sum(map(len, companions.values())),
        "train/samples": len(samples),
        "train/samples_without_advantage": sum(not a.any() for a in adv),
        "critic/advantages/max": float(max(a.max() for a in adv)),
        "critic/advantages/min": float(min(a.min() for a in adv)),
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "tokens": int(sum(len(s.token_ids) for s in samples)),
        "tokens/trained": int(lengths.sum()),
    }
