import numpy as np
import pytest

from .advantages_test import sample
from .token_shares import token_shares

SHARES = {
    "token-mean": [1 / 6, 1 / 6],
    "seq-mean-token-mean": [1 / 4, 1 / 8],
    "seq-mean-token-sum-norm": [1 / 8, 1 / 8],
}


@pytest.mark.parametrize(("mode", "expected"), SHARES.items())
def test_each_loss_agg_mode_gives_a_token_the_share_of_the_loss_that_the_paper_of_this_mode_defines(mode, expected):
    samples = [sample(1.0, trial="a", tokens=2), sample(0.0, trial="b", tokens=4)]
    np.testing.assert_allclose(token_shares(samples, mode, None), expected)


@pytest.mark.parametrize("mode", SHARES)
@pytest.mark.parametrize("branches", [5, 50])
def test_the_weight_of_a_trial_in_the_loss_does_not_depend_on_its_number_of_samples(mode, branches):
    def weights(*samples):
        found = token_shares(list(samples), mode, 200.0)
        return [sum(w * s.trained_tokens for s, w in zip(samples, found, strict=True) if s.trial_id == t) for t in "ab"]

    whole = weights(sample(1.0, trial="a", tokens=100), sample(0.0, trial="b", tokens=100))
    pieces = [sample(1.0, trial="a", tokens=100 // branches) for _ in range(branches)]
    np.testing.assert_allclose(weights(*pieces, sample(0.0, trial="b", tokens=100)), whole, rtol=1e-6)
    assert whole[0] == whole[1]


def test_the_constant_divisor_of_dr_grpos_loss_applies_once_for_each_trial():
    found = token_shares([sample(1.0, trial="a"), sample(1.0, trial="a")], "seq-mean-token-sum-norm", 128)
    np.testing.assert_allclose(found, 1 / 128)
