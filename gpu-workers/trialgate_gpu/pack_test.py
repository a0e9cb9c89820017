import numpy as np
import pytest
import torch

from . import attention
from .head import backward_through_head, token_logprobs
from .pack import chain, make_packs
from .policy import Policy


def chains(sequences, prompt=3):
    result = []
    for index, ids in enumerate(sequences):
        mask = np.arange(len(ids)) >= prompt
        result.append(chain(index, np.array(ids), mask, np.zeros(len(ids), np.float32), 0.5 + index % 2))
    return result


SHARED = list(range(5, 30))
SEQUENCES = [
    [*SHARED, 1, 2, 3, 4],
    [*SHARED, 1, 2, 9],
    [*SHARED, 7],
    [*SHARED, 7],
    [3, 4, 5, 6, 7],
    [*SHARED, *range(10, 60), *range(10, 60), *range(10, 60)],
]


def logprobs_by_sample(policy, packs, count):
    found = [[] for _ in range(count)]
    for pack in packs:
        values = token_logprobs(policy.infer(pack), policy.head, pack)
        for sample, value in zip(pack.samples, values.tolist(), strict=True):
            found[sample].append(value)
    return found


def test_a_pack_computes_a_beginning_that_several_sequences_share_once():
    packs = list(make_packs(chains(SEQUENCES), 10_000))
    distinct = {tuple(ids[: n + 1]) for ids in SEQUENCES for n in range(len(ids) - 1)}
    assert sum(len(p.token_ids) for p in packs) == len(distinct)


def test_a_tokens_log_probability_is_the_same_in_a_pack_of_any_size(tiny_model):
    policy = Policy(tiny_model, torch.device("cpu"))
    policy.model.float()
    apart = [next(make_packs([c], 10_000)) for c in chains(SEQUENCES)]
    expected = logprobs_by_sample(policy, apart, len(SEQUENCES))
    for limit in (10_000, 64, 1):
        found = logprobs_by_sample(policy, make_packs(chains(SEQUENCES), limit), len(SEQUENCES))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5)


def test_a_packs_log_probabilities_equal_those_of_transformers_own_forward_pass(tiny_model):
    policy = Policy(tiny_model, torch.device("cpu"))
    policy.model.float()
    found = logprobs_by_sample(policy, make_packs(chains(SEQUENCES), 10_000), len(SEQUENCES))
    policy.model.set_attn_implementation("eager")
    for item, ids in zip(chains(SEQUENCES), SEQUENCES, strict=True):
        with torch.no_grad():
            logits = policy.model(torch.tensor([ids])).logits[0] / item.temperature
        expected = logits.log_softmax(-1)[item.predictors, item.targets]
        np.testing.assert_allclose(found[item.sample], expected, atol=2e-5)


@pytest.mark.parametrize("kept_weights", [attention.KEPT_WEIGHTS, 0])
@pytest.mark.parametrize("by_sequence", [False, True])
def test_the_trainers_gradient_through_a_pack_equals_that_of_pytorch_autograd_also_where_attention_is_recomputed(
    tiny_model, by_sequence, kept_weights, monkeypatch
):
    monkeypatch.setattr(attention, "KEPT_WEIGHTS", kept_weights)
    policy = Policy(tiny_model, torch.device("cpu"))
    policy.model.float()
    gradient = policy.start_gradient()
    slopes = torch.linspace(-1, 1, 512)
    (pack,) = make_packs(chains(SEQUENCES), 10_000)
    hidden = policy.hidden(pack)
    back, entropies = backward_through_head(
        hidden.detach(),
        policy.head,
        pack,
        lambda tokens, _: slopes[tokens],
        policy.head_gradient(),
        by_sequence=by_sequence,
    )
    hidden.backward(back)
    found = gradient.clone()

    gradient = policy.start_gradient()
    policy.model.set_attn_implementation("eager")
    loss, seen = 0.0, dict.fromkeys(range(len(SEQUENCES)), 0)
    order = {(s, n): i for i, (s, n) in enumerate(_numbered(pack.samples, seen))}
    for item, ids in zip(chains(SEQUENCES), SEQUENCES, strict=True):
        logprobs = (policy.model(torch.tensor([ids])).logits[0] / item.temperature).log_softmax(-1)
        picks = [order[item.sample, n] for n in range(len(item.targets))]
        loss = loss + (logprobs[item.predictors, item.targets] * slopes[picks]).sum()
        entropy = -(logprobs.exp() * logprobs).sum(-1)[item.predictors]
        torch.testing.assert_close(entropies[picks], entropy.detach(), atol=1e-4, rtol=1e-4)
    loss.backward()
    torch.testing.assert_close(found, gradient, atol=1e-4, rtol=1e-3)


def _numbered(samples, seen):
    for sample in samples.tolist():
        yield sample, seen[sample]
        seen[sample] += 1


def group(prompt, trials=8, turns=5, seed=0):
    """Returns a group of trials with one prompt of this length. Each turn has 64 observed and 64 sampled tokens."""
    draw = np.random.default_rng(seed)
    start = draw.integers(0, 50_000, prompt)
    tail = np.concatenate([np.zeros(prompt), np.tile(np.repeat([0, 1], 64), turns)]).astype(bool)
    made = []
    for _ in range(trials):
        ids = np.concatenate([start, draw.integers(0, 50_000, turns * 128)])
        made.append((ids, tail))
    return made


def computed_and_distinct(sequences, max_tokens):
    """Returns the tokens that the packs compute, with each prefix once, and the tokens that differ in id or context."""
    made = [chain(n, ids, mask, np.zeros(len(ids), np.float32), 1.0) for n, (ids, mask) in enumerate(sequences)]
    packs = list(make_packs(made, max_tokens))
    prefixes = {id(p.prefix): len(p.prefix) for p in packs if p.prefix is not None}
    distinct = {hash(c.inputs[: n + 1].tobytes()) for c in made for n in range(len(c.inputs))}
    assert sorted(np.concatenate([np.unique(p.samples) for p in packs])) == list(range(len(made)))
    assert all(len(p.token_ids) <= max_tokens for p in packs)
    return sum(len(p.token_ids) for p in packs) + sum(prefixes.values()), len(distinct)


@pytest.mark.parametrize("max_tokens", [2048, 16384])
@pytest.mark.parametrize("prompt", [512, 2048, 8192])
@pytest.mark.parametrize("groups", [1, 3])
def test_at_most_5_percent_more_tokens_are_computed_than_are_distinct_at_every_prompt_length_and_pack_size(
    prompt, max_tokens, groups
):
    system = np.arange(128)
    sequences = [
        (np.concatenate([system, ids]), np.concatenate([np.zeros(128, bool), mask]))
        for seed in range(groups)
        for ids, mask in group(prompt, seed=seed)
    ]
    computed, distinct = computed_and_distinct(sequences, max_tokens)
    assert computed / distinct <= 1.05


def test_at_most_5_percent_more_tokens_are_computed_than_are_distinct_when_a_trials_samples_share_a_beginning():
    sequences = group(512, trials=2)
    (ids, mask), other = sequences
    branched = [
        (np.concatenate([ids[:900], np.arange(end)]), np.concatenate([mask[:900], np.ones(end)]).astype(bool))
        for end in (40, 50)
    ]
    computed, distinct = computed_and_distinct([(ids, mask), *branched, other], 2048)
    assert computed / distinct <= 1.05
