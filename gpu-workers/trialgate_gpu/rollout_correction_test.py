import pytest
import torch

from conftest import settings_with

from .objectives.objective import Tokens
from .rollout_correction import correction, correction_metrics, importance_weight

SEQUENCE = torch.tensor([0, 0, 1, 1])
OLD_LOGPROBS = torch.tensor([-1.0, -1.0, -2.0, -2.0])


def of(differences, **settings):
    tokens = Tokens(torch.ones(4), OLD_LOGPROBS, SEQUENCE)
    return correction(tokens, OLD_LOGPROBS - torch.tensor(differences).log(), settings_with(**settings))


def test_an_importance_weight_is_at_most_the_threshold_and_exactly_1_where_the_log_probabilities_are_equal():
    rollout_logprobs = torch.tensor([-1.0, -3.0, -1.0, -3e38, 3e38])
    old_logprobs = torch.tensor([-1.0, -1.0, -3.0, -1.0, -1.0])
    tokens = Tokens(torch.ones(5), old_logprobs, torch.arange(5))
    found = importance_weight(tokens, rollout_logprobs, settings_with())
    assert found[0] == 1 and found[1] == found[3] == 2
    torch.testing.assert_close(found[[2, 4]], torch.tensor([-2.0, -20.0]).exp())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rollout_is": "token"}, [1.5, 0.5, 1.0, 2.0]),
        ({"rollout_is": "sequence"}, [0.75, 0.75, 2.0, 2.0]),
        ({"rollout_is": "none"}, [1.0, 1.0, 1.0, 1.0]),
        ({"rollout_rs": "token_k1"}, [1.5, 0.5, 1.0, 0.0]),
        ({"rollout_rs": "token_k1", "rollout_rs_threshold": [0.6, 10.0]}, [1.5, 0.0, 1.0, 2.0]),
        # The geometric means are 0.87 and 3.
        ({"rollout_rs": "seq_mean_k1"}, [1.5, 0.5, 0.0, 0.0]),
        ({"rollout_rs": "seq_mean_k1", "rollout_is": "none", "rollout_rs_threshold": [0.9, 5.0]}, [0.0, 0.0, 1.0, 1.0]),
    ],
)
def test_importance_weights_are_limited_or_set_to_0_as_rollout_is_and_rollout_rs_say(settings, expected):
    torch.testing.assert_close(of([1.5, 0.5, 1.0, 9.0], **settings), torch.tensor(expected))


def test_the_metrics_of_the_rollout_correction_include_tokens_that_rollout_rs_excludes():
    tokens = Tokens(torch.zeros(4), OLD_LOGPROBS, SEQUENCE)
    rollout_logprobs = OLD_LOGPROBS - torch.tensor([1.0, 1.0, 0.25, 8.0]).log()
    found = correction_metrics(tokens, rollout_logprobs, settings_with(rollout_rs="token_k1"))
    assert found["rollout_corr/rollout_is_ratio_fraction_high"] == 0.25
    assert found["rollout_corr/rollout_is_ratio_fraction_low"] == 0.25
    assert found["rollout_corr/rollout_rs_masked_fraction"] == 0.5
    assert found["rollout_corr/kl"] == pytest.approx(-torch.tensor(2.0).log().item() / 4)
    assert found["rollout_corr/k3_kl"] == pytest.approx((0.25 + 8 - 2) / 4 - torch.tensor(2.0).log().item() / 4)
    assert found["rollout_corr/log_ratio_max"] == pytest.approx(torch.tensor(8.0).log().item())
