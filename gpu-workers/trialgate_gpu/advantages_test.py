import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import row, settings_with

from .advantages import advantages, companion_rewards, trial_rewards, weighted_reward
from .batch import Sample
from .errors import GpuWorkerError


def sample(reward, group="g", trial="t", tokens=2, companions=(), turns=None, of_turns=None, others=(), **rewards):
    """Returns a sample. `turns`: the turn of each token; `of_turns`, `others`: turn rewards of trial and companions."""
    given = row([1], [2] * tokens, reward, group, trial)
    mask = np.array(given["loss_mask"], bool)
    named = {"reward": reward} | rewards
    versions = np.zeros(len(mask), int)
    ids, logprobs = np.array(given["token_ids"]), np.array(given["logprobs"])
    turns = None if turns is None else np.array([-1, *turns])
    made = Sample(ids, mask, logprobs, versions, 1.0, named, list(companions), group, trial)
    return replace(made, turns=turns, turn_rewards=of_turns or {}, companion_turn_rewards=list(others))


def by_token(samples, norm_by_std=True, weights=None, objective="grpo"):
    weights = weights or {}
    settings = settings_with(objective=objective, norm_adv_by_std_in_grpo=norm_by_std, reward_weights=weights)
    return advantages(samples, trial_rewards(samples, weights), companion_rewards(samples, weights), settings)


def advantages_of(samples, norm_by_std=True, weights=None, objective="grpo"):
    """Returns one advantage for each sample, all of whose tokens must have the same."""
    found = by_token(samples, norm_by_std, weights, objective)
    assert all((of_tokens == of_tokens[0]).all() for of_tokens in found)
    return np.array([of_tokens[0] for of_tokens in found])


def test_a_trial_with_several_samples_counts_once_in_its_group():
    samples = [sample(1.0, trial="a"), sample(1.0, trial="a"), sample(0.0, trial="b")]
    found = advantages_of(samples)
    np.testing.assert_allclose(found, [0.70710, 0.70710, -0.70710], atol=1e-4)


def test_the_trials_of_a_group_with_equal_rewards_have_advantage_0_despite_rounding():
    samples = [sample(0.1 + 0.2, trial=str(i)) for i in range(3)]
    assert not advantages_of(samples).any()


def test_a_trial_alone_in_its_group_has_advantage_0():
    assert not advantages_of([sample(1.0)]).any()


def test_without_norm_adv_by_std_a_trials_advantage_is_its_distance_from_the_groups_mean_reward():
    samples = [sample(1.0, trial="a"), sample(0.5, trial="b")]
    np.testing.assert_allclose(advantages_of(samples, norm_by_std=False), [0.25, -0.25])


@pytest.mark.parametrize(("norm_by_std", "expected"), [(True, [0.5, -1.5]), (False, [0.25, -0.75])])
def test_a_groups_trials_outside_the_batch_count_in_the_mean_and_deviation_of_that_group_only(norm_by_std, expected):
    # The rewards are 1, 0, 1, 1: mean 0.75, deviation sqrt((3 x 0.0625 + 0.5625) / 3) = 0.5.
    both = [{"reward": 1.0}, {"reward": 1.0}]
    samples = [sample(1.0, trial="a", companions=both), sample(0.0, trial="b", companions=both)]
    other = [sample(1.0, "h", "c"), sample(1.0, "h", "d")]
    found = advantages_of(samples + other, norm_by_std)
    np.testing.assert_allclose(found, [*expected, 0, 0], atol=1e-5)


def test_a_straggler_alone_in_its_batch_is_compared_with_its_groups_trials_of_earlier_batches():
    np.testing.assert_allclose(advantages_of([sample(1.0, companions=[{"reward": 0.0}])]), [0.70710], atol=1e-4)
    assert not advantages_of([sample(1.0, companions=[{"reward": 1.0}])]).any()


def test_rewards_of_a_groups_trials_outside_the_batch_are_weighted_like_those_in_the_batch():
    given = sample(1.0, companions=[{"reward": 1.0, "style": 1.0}])
    assert companion_rewards([given], {"reward": 0.5}) == {"g": [1.5]}


def test_a_batch_with_two_lists_of_one_groups_trials_outside_the_batch_is_refused():
    with pytest.raises(GpuWorkerError, match="group g has two different lists of companions"):
        companion_rewards([sample(1.0, trial="a"), sample(0.0, trial="b", companions=[{"reward": 0.0}])], {})


@pytest.mark.parametrize("case", json.loads(Path(__file__).with_name("weighted_rewards.json").read_text()))
def test_the_trainer_weights_named_rewards_as_the_typescript_activities_do(case):
    assert weighted_reward(case["rewards"], case["weights"]) == case["weighted"]
    samples = [replace(sample(0.0), rewards=case["rewards"])]
    assert trial_rewards(samples, case["weights"]) == {"t": case["weighted"]}


def test_a_batch_with_two_different_rewards_for_one_trial_is_refused():
    with pytest.raises(GpuWorkerError, match="trial t has two different rewards"):
        trial_rewards([sample(0.5), sample(0.6)], {})


def test_rloo_compares_a_trial_with_the_mean_of_its_groups_other_trials_in_and_outside_the_batch():
    samples = [sample(1.0, trial=t, companions=[{"reward": 0.0}]) for t in "ab"]
    np.testing.assert_allclose(advantages_of(samples, objective="rloo"), [0.5, 0.5])
    assert not advantages_of([sample(0.1 + 0.2, trial=str(i)) for i in range(3)], objective="rloo").any()


def test_a_turns_return_is_the_reward_from_that_turn_on_and_its_baseline_has_all_trials_of_the_group():
    # Returns from turns 0, 1 and 2 on: a 1, 0.75, 0.5; b 0.25, 0.25, 0.25 (it has one turn, and its outcome is 0.25).
    a = sample(1.0, trial="a", turns=[0, 1], of_turns={"reward": [0.25, 0.25]})
    b = sample(0.25, trial="b", turns=[0, 0])
    found = by_token([a, b], norm_by_std=False)
    np.testing.assert_allclose(found[0], [0.375, 0.25])
    np.testing.assert_allclose(found[1], [-0.375, -0.375])
    # The deviation of turn 0, the largest, divides all turns of the group.
    np.testing.assert_allclose(by_token([a, b])[0], np.array([0.375, 0.25]) / (0.75 / 2**0.5), rtol=1e-5)
    np.testing.assert_allclose(by_token([a, b], objective="rloo")[0], [0.75, 0.5])


def test_turn_rewards_of_a_groups_trials_outside_the_batch_count_weighted_in_the_baseline():
    a = sample(
        0.0, trial="a", turns=[0, 1], steps=1.0, of_turns={"steps": [1.0]}, companions=[{"steps": 0.5}], others=[{}]
    )
    np.testing.assert_allclose(by_token([a], False, {"steps": 2.0})[0], [0.5, -0.5])
    b = replace(a, companion_turn_rewards=[{"steps": [0.5]}])
    np.testing.assert_allclose(by_token([b], False, {"steps": 2.0})[0], [0.5, 0.0])


def test_all_turns_after_a_trials_last_rewarded_turn_have_the_same_return():
    samples = [
        sample(1.0, trial="a", tokens=3, turns=[0, 1, 7], of_turns={"reward": [1.0]}),
        sample(0.0, trial="b", turns=[0, 9]),
    ]
    found = by_token(samples, norm_by_std=False)
    np.testing.assert_allclose(found[0], [0.5, 0, 0])
    np.testing.assert_allclose(found[1], [-0.5, 0])


def test_trials_with_equal_rewards_have_different_advantages_when_different_turns_earned_them():
    samples = [
        sample(1.0, trial="a", turns=[0, 1], of_turns={"reward": [1.0, 0.0]}),
        sample(1.0, trial="b", turns=[0, 1], of_turns={"reward": [0.0, 1.0]}),
    ]
    np.testing.assert_allclose(by_token(samples), [[0, -0.70710], [0, 0.70710]], atol=1e-4)
    same = [sample(1.0, trial=t, turns=[0, 1], of_turns={"reward": [0.5, 0.5]}) for t in "ab"]
    assert not any(found.any() for found in by_token(same))


def test_gspo_which_has_one_advantage_a_sample_uses_the_sum_of_a_trials_turn_rewards():
    samples = [
        sample(1.0, trial="a", turns=[0, 1], of_turns={"reward": [1.0, 0.0]}),
        sample(0.0, trial="b", turns=[0, 1]),
    ]
    np.testing.assert_allclose(advantages_of(samples, objective="gspo"), [0.70710, -0.70710], atol=1e-4)


@pytest.mark.parametrize(("objective", "scale"), [("rloo", 1.0), ("grpo", 1 - 1 / 3)])
def test_advantages_of_turns_give_the_exact_expected_gradient_for_an_agent_that_decides_when_to_stop(objective, scale):
    """Enumerates every group of 3 trials of an agent that takes up to 3 turns, so the expectation is exact.

    The agent goes on with probability p after each turn. A later turn earns more, and the outcome depends on the number
    of turns. The naive baseline, the mean of each turn's reward over the trials that reached it, added up to the
    trial's own last turn, gives another gradient (verl#7244).
    """
    p, earned, outcomes = 0.6, [0.1, 0.2, 0.4], [0.3, 0.0, 0.1]
    chances = [1 - p, p * (1 - p), p * p]

    def score(turns, k):
        """Returns the slope of the log-probability of the decision in turn k."""
        return 0.0 if k == 2 else (1 / p if k < turns - 1 else -1 / (1 - p))

    def trial(turns, name):
        steps = earned[:turns]
        named = {"steps": sum(steps), "of_turns": {"steps": steps}}
        return sample(outcomes[turns - 1], trial=name, tokens=turns, turns=range(turns), **named)

    found = naive = 0.0
    for group in itertools.product((1, 2, 3), repeat=3):
        chance = np.prod([chances[turns - 1] for turns in group])
        of_tokens = by_token([trial(turns, str(i)) for i, turns in enumerate(group)], False, None, objective)
        for turns, of_turns in zip(group, of_tokens, strict=True):
            found += chance * sum(a * score(turns, k) for k, a in enumerate(of_turns)) / 3
            means = [earned[k] if max(group) > k else 0.0 for k in range(3)]
            centered = outcomes[turns - 1] - np.mean([outcomes[t - 1] for t in group])
            for k in range(turns):
                naive += chance * (centered + sum(earned[j] - means[j] for j in range(k, turns))) * score(turns, k) / 3
    values = [sum(earned[:turns]) + outcomes[turns - 1] for turns in (1, 2, 3)]
    exact = -values[0] + (1 - 2 * p) * values[1] + 2 * p * values[2]
    assert found == pytest.approx(scale * exact, rel=1e-9)
    assert abs(naive - (1 - 1 / 3) * exact) > 0.1


@pytest.mark.parametrize("objective", ["grpo", "rloo"])
def test_without_turn_rewards_every_turn_has_exactly_the_advantage_of_its_whole_trial(objective):
    generator = np.random.default_rng(0)
    for size in (2, 3, 8, 9, 16, 40, 130):
        rewards = generator.random(size)
        turns = [sample(r, trial=str(i), turns=[0, 3]) for i, r in enumerate(rewards)]
        if objective == "rloo":
            expected = (rewards - rewards.mean()) * (size / (size - 1))
        else:
            expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
        assert (advantages_of(turns, objective=objective) == expected).all()
