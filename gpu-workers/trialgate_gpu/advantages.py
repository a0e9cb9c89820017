"""Computes the advantages of trained tokens from the rewards of trials and of their turns.

A token has the advantage of its turn. A turn's return is what its trial earned from that turn on:
G[i, k] = R[i] - (what turns before k earned), where R[i] is the trial's whole reward. A turn gets no credit for rewards
before it. The baseline of turn k is the mean of G[j, k] over all trials j of the group. A trial j that ended before
turn k counts too, with what no turn earned (its outcome), so that the number of terms does not depend on when a trial
ends. A baseline that normalizes each turn's reward over the trials that reached the turn, and adds these up to the
trial's own last turn, depends on the policy's decision to stop and biases the gradient (verl#7244 shows this for
MT-GRPO, arXiv 2505.11821). Here trial i's own part of the baseline of turn k is 1/N of its own return, which only
scales the expected gradient by 1 - 1/N as in GRPO (RLOO leaves it out); the others' parts are independent of what
trial i samples from turn k on, so their product with the score function has mean 0 (REINFORCE with a baseline,
Williams 1992). Dividing by the deviation biases as it does in GRPO (Dr. GRPO, arXiv 2503.20783).

When no reward is given turn by turn, G[i, k] = R[i] for all k: the advantages are those of whole trials, to the bit.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from .batch import Sample, TurnRewards
from .errors import GpuWorkerError, NotFiniteError
from .objectives import OBJECTIVES
from .objectives.baselines import has_spread
from .settings import TrainerSettings

Weights = dict[str, float]


def weighted_reward(rewards: dict[str, float], weights: Weights) -> float:
    """Returns the weighted sum of named rewards. A name without a weight counts 1 (TRL's `reward_weights`).

    `core/weighted-reward.ts` must compute the same: the tests of both read `weighted_rewards.json`.
    """
    return sum(value * weights.get(name, 1.0) for name, value in rewards.items())


def trial_rewards(samples: list[Sample], weights: Weights) -> dict[str, float]:
    """Returns the weighted reward of each trial."""
    rewards: dict[str, float] = {}
    for sample in samples:
        reward = weighted_reward(sample.rewards, weights)
        if rewards.setdefault(sample.trial_id, reward) != reward:
            raise GpuWorkerError(
                "BadBatch", f"trial {sample.trial_id} has two different rewards; assemble the batch again"
            )
    return rewards


def companion_rewards(samples: list[Sample], weights: Weights) -> dict[str, list[float]]:
    """Returns, by group, the rewards of its scored trials that have no sample in this batch."""
    companions: dict[str, list[float]] = {}
    for sample in samples:
        found = [weighted_reward(companion, weights) for companion in sample.companions]
        if companions.setdefault(sample.group_id, found) != found:
            raise GpuWorkerError(
                "BadBatch", f"group {sample.group_id} has two different lists of companions; assemble the batch again"
            )
    return companions


def _returns(reward: float, of_turns: TurnRewards, weights: Weights, turns: int) -> np.ndarray:
    """Returns [turns + 1]: `reward` minus what earlier turns earned. The last entry holds for all later turns."""
    earned = np.zeros(turns)
    for name, values in of_turns.items():
        known = values[:turns]
        earned[: len(known)] += np.array(known) * weights.get(name, 1.0)
    return reward - np.concatenate([[0.0], np.cumsum(earned)])


def _most_turns(of_turns: list[TurnRewards]) -> int:
    return max((len(values) for named in of_turns for values in named.values()), default=0)


def advantages(
    samples: list[Sample], rewards: dict[str, float], companions: dict[str, list[float]], settings: TrainerSettings
) -> list[np.ndarray]:
    """Returns, for each sample, the advantage of each of its trained tokens.

    Without turn rewards, all tokens of a trial have the same advantage. Companions count in the baseline. Raises
    `NotFiniteError` when an advantage is not finite in float32, in which the loss is computed.
    """
    objective = OBJECTIVES[settings.objective]
    first_of_trial: dict[str, dict[str, Sample]] = defaultdict(dict)
    for sample in samples:
        first_of_trial[sample.group_id].setdefault(sample.trial_id, sample)
    # For each (group, trial): [turns + 1].
    by_trial: dict[tuple[str, str], np.ndarray] = {}
    for group, trials in first_of_trial.items():
        any_sample = next(iter(trials.values()))
        of_others = any_sample.companion_turn_rewards or [{} for _ in companions[group]]
        of_turns = [sample.turn_rewards for sample in trials.values()] + of_others
        totals = [rewards[trial] for trial in trials] + companions[group]
        # An objective `by_sequence` needs one advantage for a whole sequence.
        turns = 0 if objective.by_sequence else _most_turns(of_turns)
        with np.errstate(over="ignore", invalid="ignore"):
            returns = [
                _returns(total, turn_rewards, settings.reward_weights, turns)
                for total, turn_rewards in zip(totals, of_turns, strict=True)
            ]
            # [turns + 1, trials of the group], copied so that the trials of a turn are contiguous.
            values = np.ascontiguousarray(np.stack(returns, axis=1))
            found = objective.advantages(values, settings)
            finite = np.isfinite(values) & np.isfinite(found.astype(np.float32))
        # If the deviation overflows, all advantages are 0 although the rewards differ.
        if not finite.all() or (has_spread(values).any() and not found.any()):
            raise NotFiniteError(f"a reward or advantage of group {group} is not finite or too large")
        by_trial |= {(group, trial): found[:, i] for i, trial in enumerate(trials)}
    return [_of_tokens(sample, by_trial[sample.group_id, sample.trial_id]) for sample in samples]


def _of_tokens(sample: Sample, of_turns: np.ndarray) -> np.ndarray:
    """Returns [trained tokens]. `of_turns` is [turns + 1]."""
    last = len(of_turns) - 1
    if last == 0 or sample.turns is None:
        return np.full(sample.trained_tokens, of_turns[0])
    return of_turns[np.minimum(sample.turns[sample.loss_mask], last)]
