import numpy as np
import pytest

from conftest import row

from .advantages import advantages, companion_rewards, trial_rewards
from .batch import Sample
from .errors import GpuWorkerError
from .settings import TrainerSettings


def sample(reward, group="g", trial="t", tokens=2, companions=(), **rewards):
    given = row([1], [2] * tokens, reward, group, trial)
    mask = np.array(given["loss_mask"], bool)
    named = {"reward": reward} | rewards
    versions = np.zeros(len(mask), int)
    ids, logprobs = np.array(given["token_ids"]), np.array(given["logprobs"])
    return Sample(ids, mask, logprobs, versions, 1.0, named, list(companions), group, trial)


def advantages_of(samples, norm_by_std=True, weights=None, objective="grpo"):
    settings = TrainerSettings(objective=objective, norm_adv_by_std_in_grpo=norm_by_std)
    return advantages(samples, trial_rewards(samples, weights), companion_rewards(samples, weights), settings)


def test_trial_with_several_samples_counts_once_in_its_group():
    samples = [sample(1.0, trial="a"), sample(1.0, trial="a"), sample(0.0, trial="b")]
    found = advantages_of(samples)
    np.testing.assert_allclose(found, [0.70710, 0.70710, -0.70710], atol=1e-4)


def test_group_without_spread_has_no_advantage_despite_rounding():
    samples = [sample(0.1 + 0.2, trial=str(i)) for i in range(3)]
    assert not advantages_of(samples).any()


def test_lone_trial_has_no_advantage():
    assert not advantages_of([sample(1.0)]).any()


def test_without_std_the_advantage_is_the_distance_from_the_mean():
    samples = [sample(1.0, trial="a"), sample(0.5, trial="b")]
    np.testing.assert_allclose(advantages_of(samples, norm_by_std=False), [0.25, -0.25])


@pytest.mark.parametrize(("norm_by_std", "expected"), [(True, [0.5, -1.5]), (False, [0.25, -0.75])])
def test_companions_count_in_mean_and_deviation_of_their_group_alone(norm_by_std, expected):
    # Of 1, 0, 1, 1: mean 0.75, deviation sqrt((3 x 0.0625 + 0.5625) / 3) = 0.5.
    both = [{"reward": 1.0}, {"reward": 1.0}]
    samples = [sample(1.0, trial="a", companions=both), sample(0.0, trial="b", companions=both)]
    other = [sample(1.0, "h", "c"), sample(1.0, "h", "d")]
    found = advantages_of(samples + other, norm_by_std)
    np.testing.assert_allclose(found, [*expected, 0, 0], atol=1e-5)


def test_straggler_alone_in_its_batch_is_compared_with_its_companions():
    np.testing.assert_allclose(advantages_of([sample(1.0, companions=[{"reward": 0.0}])]), [0.70710], atol=1e-4)
    assert not advantages_of([sample(1.0, companions=[{"reward": 1.0}])]).any()


def test_companions_rewards_are_weighted_like_the_trials_own():
    given = sample(1.0, companions=[{"reward": 1.0, "style": 1.0}])
    assert companion_rewards([given], {"reward": 0.5}) == {"g": [1.5]}


def test_two_lists_of_companions_for_one_group_are_refused():
    with pytest.raises(GpuWorkerError, match="group g has two different lists of companions"):
        companion_rewards([sample(1.0, trial="a"), sample(0.0, trial="b", companions=[{"reward": 0.0}])], None)


def test_reward_weights_scale_named_rewards_and_others_count_once():
    assert trial_rewards([sample(0.5, style=1.0)], {"reward": 2.0}) == {"t": 2.0}
    assert trial_rewards([sample(0.5, style=1.0)], None) == {"t": 1.5}


def test_two_rewards_for_one_trial_are_refused():
    with pytest.raises(GpuWorkerError, match="trial t has two different rewards"):
        trial_rewards([sample(0.5), sample(0.6)], None)


def test_rloo_compares_a_trial_with_the_mean_of_the_others_companions_included():
    samples = [sample(1.0, trial=t, companions=[{"reward": 0.0}]) for t in "ab"]
    np.testing.assert_allclose(advantages_of(samples, objective="rloo"), [0.5, 0.5])
    assert not advantages_of([sample(0.1 + 0.2, trial=str(i)) for i in range(3)], objective="rloo").any()
