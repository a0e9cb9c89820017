import numpy as np
import pytest
import torch

from conftest import row

from .batch import Sample
from .errors import GpuWorkerError
from .grpo_loss import advantages, clipped_loss, token_weights, trial_rewards


def sample(reward, group="g", trial="t", tokens=2, **rewards):
    given = row([1], [2] * tokens, reward, group, trial)
    mask = np.array(given["loss_mask"], bool)
    named = {"reward": reward} | rewards
    return Sample(np.array(given["token_ids"]), mask, np.array(given["logprobs"]), 1.0, named, group, trial)


def test_trial_with_several_samples_counts_once_in_its_group():
    samples = [sample(1.0, trial="a"), sample(1.0, trial="a"), sample(0.0, trial="b")]
    found = advantages(samples, trial_rewards(samples, None), norm_by_std=True)
    np.testing.assert_allclose(found, [0.70710, 0.70710, -0.70710], atol=1e-4)


def test_group_without_spread_has_no_advantage_despite_rounding():
    samples = [sample(0.1 + 0.2, trial=str(i)) for i in range(3)]
    assert not advantages(samples, trial_rewards(samples, None), norm_by_std=True).any()


def test_lone_trial_has_no_advantage():
    assert not advantages([sample(1.0)], {"t": 1.0}, norm_by_std=True).any()


def test_without_std_the_advantage_is_the_distance_from_the_mean():
    samples = [sample(1.0, trial="a"), sample(0.5, trial="b")]
    np.testing.assert_allclose(advantages(samples, {"a": 1.0, "b": 0.5}, norm_by_std=False), [0.25, -0.25])


def test_reward_weights_scale_named_rewards_and_others_count_once():
    assert trial_rewards([sample(0.5, style=1.0)], {"reward": 2.0}) == {"t": 2.0}
    assert trial_rewards([sample(0.5, style=1.0)], None) == {"t": 1.5}


def test_two_rewards_for_one_trial_are_refused():
    with pytest.raises(GpuWorkerError, match="trial t has two different rewards"):
        trial_rewards([sample(0.5), sample(0.6)], None)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", [1 / 6, 1 / 6]),
        ("seq-mean-token-mean", [1 / 4, 1 / 8]),
        ("seq-mean-token-sum-norm", [1 / 8, 1 / 8]),
    ],
)
def test_token_weights_follow_their_papers(mode, expected):
    samples = [sample(1.0, tokens=2), sample(0.0, tokens=4)]
    np.testing.assert_allclose(token_weights(samples, mode, None), expected)


def test_clip_cuts_only_where_ppo_cuts():
    logprob = torch.log(torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1])).requires_grad_()
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    found = clipped_loss(logprob.detach(), torch.zeros(5), advantage, 0.2, 0.3)
    ratio = logprob.exp()
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.3))
    loss.sum().backward()
    torch.testing.assert_close(found.loss, loss.detach())
    torch.testing.assert_close(found.d_logprob, logprob.grad)
    assert found.clipped.tolist() == [True, False, False, True, False]
