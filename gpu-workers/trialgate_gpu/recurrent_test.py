"""Tests models with layers that keep a state: short convolutions, gated delta nets and Mamba-2."""

import gc
import weakref

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from . import gradient_check, recurrent
from .errors import GpuWorkerError
from .examine_model import examine
from .families_test import TRAINED, make
from .gradient_check import TEMPERATURE, _slopes
from .group.placement import recompute_layers
from .outline import outline
from .pack import distinct_tokens, make_packs
from .pieces_test import forks
from .policy import Policy
from .prefix import Prefixes
from .recurrent import Recurrent
from .self_check import chains_of

CPU = torch.device("cpu")
KINDS = ("lfm2", "qwen3_next", "bamba")


@pytest.fixture(scope="module", params=KINDS)
def policy(request, tmp_path_factory):
    folder = make(tmp_path_factory.mktemp(request.param), request.param, TRAINED[request.param])
    return Policy(folder, CPU, torch.float32)


def packed(policy, sequences, untrained, max_tokens):
    """Returns the gradient of packed sequences, log-probabilities by sequence, and how many tokens were computed."""
    gradient, prefixes, computed = policy.start_gradient(), Prefixes(), 0
    logprobs = {}
    for pack in make_packs(chains_of(sequences, untrained, TEMPERATURE), max_tokens):
        targets = torch.from_numpy(pack.targets)
        found = policy.logprobs(pack)
        logprobs |= {int(n): found[torch.from_numpy(pack.samples == n)] for n in np.unique(pack.samples)}
        policy.backward(pack, prefixes, lambda tokens, _, of=targets: _slopes(of[tokens]), by_sequence=False)
        if prefixes.states is not None:
            prefixes.states.collect()
        computed += len(pack.token_ids)
    prefixes.end()
    return gradient.clone(), [logprobs[n] for n in range(len(sequences))], computed + prefixes.computed


def alone(policy, sequences, untrained):
    """Returns the same of transformers' own model, a sequence at a time."""
    gradient, logprobs = policy.start_gradient(), []
    with policy.eager():
        for ids in sequences:
            tokens = torch.from_numpy(ids)
            rows = (policy.logits(tokens)[:-1] / TEMPERATURE).log_softmax(-1)
            chosen = rows.gather(1, tokens[1:, None])[untrained:, 0]
            (chosen * _slopes(tokens[untrained + 1 :])).sum().backward()
            logprobs.append(chosen.detach())
    return gradient.clone(), logprobs


def require_equal(found, expected):
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=0)
    assert float((found[0] - expected[0]).norm() / expected[0].norm()) <= 1e-4


@pytest.mark.parametrize("max_tokens", [10_000, 50], ids=["one pack", "a prefix of several packs"])
def test_sequences_that_branch_in_a_reply_give_log_probabilities_and_gradient_of_the_same_alone(policy, max_tokens):
    sequences, untrained = forks(), 24
    require_equal(packed(policy, sequences, untrained, max_tokens), alone(policy, sequences, untrained))


@pytest.mark.parametrize("prompt", [512, pytest.param(2048, marks=pytest.mark.processes)])
def test_a_prompt_that_8_trials_share_is_computed_once_and_its_gradient_is_that_of_8_times_it(policy, prompt):
    draw = np.random.default_rng(0)
    start = draw.integers(0, 64, prompt)
    sequences = [np.concatenate([start, [n], draw.integers(0, 64, 24 + n)]) for n in range(8)]
    for max_tokens, most in ((10_000, 1.0), (128, 1.05)):
        found = packed(policy, sequences, prompt - 1, max_tokens)
        # As with attention alone: a pack that is not the first computes the prompt's last token again.
        assert found[2] / distinct_tokens(chains_of(sequences, prompt - 1)) <= most
        require_equal(found, alone(policy, sequences, prompt - 1))


def test_a_layer_that_keeps_a_state_gets_the_tokens_of_a_shared_prompt_once(policy, monkeypatch):
    draw = np.random.default_rng(0)
    start, replies = draw.integers(0, 64, 512), [draw.integers(0, 64, 24 + n) for n in range(8)]
    (pack,) = make_packs(chains_of([np.concatenate([start, each]) for each in replies], 511), 10_000)
    layer = next(part.forward for part in policy.model.modules() if isinstance(part.forward, Recurrent))
    plain, sizes = layer.forward, []

    def counted(piece, **given):
        sizes.append(piece.shape[0] * piece.shape[1])
        return plain(piece, **given)

    monkeypatch.setattr(layer, "forward", counted)
    policy.logprobs(pack)
    # Replies of about the same length are one call, padded to the longest.
    assert sum(map(len, [start, *replies])) <= sum(sizes) <= 512 + 1.4 * sum(map(len, replies))


def test_layers_that_are_computed_again_in_the_backward_pass_give_the_same_gradient(policy, tmp_path):
    again = Policy(make(tmp_path, name := policy.model.config.model_type, TRAINED[name]), CPU, torch.float32)
    recompute_layers(again.model)
    found, expected = (packed(each, forks(), 24, 50)[0] for each in (again, policy))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


STATES = recurrent._states


def detached(before, kept):
    found = STATES(before, kept)
    return None if found is None else tuple(each.detach() for each in found)


@pytest.mark.parametrize("states", [lambda *_: None, detached], ids=["no state", "a state without its gradient"])
@pytest.mark.parametrize("case", gradient_check.CASES, ids=["branches in one pack", "a prefix of several packs"])
def test_the_gradient_check_finds_a_state_that_is_not_handed_on(policy, monkeypatch, states, case):
    monkeypatch.setattr(gradient_check, "CASES", (case,))
    assert gradient_check.gradient_deviation(policy) <= 1e-4
    monkeypatch.setattr(recurrent, "_states", states)
    assert gradient_check.gradient_deviation(policy) > 1e-3


def test_no_layer_keeps_the_states_of_a_prefix_after_its_packs(policy):
    prefixes = Prefixes()
    for pack in make_packs(chains_of(forks(), 24), 50):
        policy.logprobs(pack, prefixes)
    states = weakref.ref(prefixes.states)
    prefixes.end()
    gc.collect()
    assert states() is None


@pytest.mark.parametrize("kind", ["zamba", "zamba2", "jamba"])
def test_a_layer_that_nothing_has_shown_to_begin_with_a_state_is_refused(tmp_path, kind):
    AutoConfig.for_model(kind).save_pretrained(tmp_path)
    with pytest.raises(GpuWorkerError, match="keep a state that sequences in one pack would share"):
        outline(tmp_path)


@pytest.mark.parametrize("kind", ["lfm2", "qwen3_5_text", "granitemoehybrid"])
def test_adapters_and_ranks_train_the_small_model_of_a_family(kind, tmp_path):
    found = examine(make(tmp_path, kind, TRAINED[kind]), kind)
    assert found.reason is found.not_run is None
    assert found.lora == ["all-linear"]
    assert max(found.deviations.lora_gradient, found.deviations.ranks_gradient) <= 1e-4


def test_each_layer_that_keeps_a_state_follows_the_plan_and_no_other(policy):
    kinds = policy.model.config.layer_types
    for kind, layer in zip(kinds, policy.model.base_model.layers, strict=True):
        follows = [isinstance(part.forward, Recurrent) for part in layer.modules()]
        assert sum(follows) == (kind in ("conv", "linear_attention"))
