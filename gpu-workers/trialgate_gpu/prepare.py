"""From samples to what the optimiser needs: advantages, token chains, and figures about the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batch import Sample
from .grpo_loss import advantages, trial_rewards
from .pack import Chain, chain
from .settings import TrainerSettings


@dataclass(frozen=True)
class Prepared:
    """`advantages` [samples] and `chains`, in the order of `samples`."""

    samples: list[Sample]
    advantages: np.ndarray
    chains: list[Chain]
    metrics: dict[str, float]


def prepare(samples: list[Sample], settings: TrainerSettings) -> Prepared:
    rewards = trial_rewards(samples, settings.reward_weights)
    adv = advantages(samples, rewards, settings.norm_adv_by_std_in_grpo)
    chains = [chain(i, s.token_ids, s.loss_mask, s.logprobs, s.temperature) for i, s in enumerate(samples)]
    return Prepared(samples, adv, chains, batch_metrics(samples, rewards, adv))


def batch_metrics(samples: list[Sample], rewards: dict[str, float], adv: np.ndarray) -> dict[str, float]:
    """Named as verl and TRL name them."""
    values = np.array(list(rewards.values()))
    lengths = np.array([s.trained_tokens for s in samples])
    group_of_trial = {s.trial_id: s.group_id for s in samples}
    groups: dict[str, list[float]] = {}
    for trial, group in group_of_trial.items():
        groups.setdefault(group, []).append(rewards[trial])
    flat = [g for g in groups.values() if max(g) == min(g)]
    return {
        "train/reward_mean": float(values.mean()),
        "train/reward_median": float(np.median(values)),
        "train/reward_std": float(values.std()),
        "train/groups": len(groups),
        "train/groups_without_spread": len(flat),
        "train/trials": len(rewards),
        "train/samples": len(samples),
        "train/samples_without_advantage": int((adv == 0).sum()),
        "critic/advantages/max": float(adv.max()),
        "critic/advantages/min": float(adv.min()),
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "tokens": int(sum(len(s.token_ids) for s in samples)),
        "tokens/trained": int(lengths.sum()),
    }
