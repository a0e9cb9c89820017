"""Tests how a trie is cut for layers that keep a state."""

import numpy as np
import pytest
import torch

from .pack import chain, make_packs
from .pieces import LEAST_TOKENS, MAX_PADDING, PREFIX, cut

CPU = torch.device("cpu")


def forks(prompt=40, reply=20):
    """Returns sequences that branch in the middle of a reply, at two tokens that follow each other, and after one."""
    draw = np.random.default_rng(1)
    start, tail = draw.integers(0, 64, prompt), draw.integers(3, 64, reply)
    half = reply // 2
    tails = [tail, [*tail[:half], 0, *tail[half + 1 :]], [*tail[:half], 1, 1], [*tail[: half + 1], 2, *tail]]
    tails += [[0, *tail], [0, 1, *tail[half:]], [1, 1], [2, *tail, *tail]]
    return [*(np.concatenate([start, each]) for each in tails), draw.integers(0, 64, 30)]


def packs_of(sequences, max_tokens, untrained=0):
    made = [
        chain(n, ids, np.arange(len(ids)) > untrained, np.zeros(len(ids), np.float32), 1.0)
        for n, ids in enumerate(sequences)
    ]
    return list(make_packs(made, max_tokens))


def some_tries():
    """Yields sequences that share beginnings of random lengths."""
    for seed in range(30):
        draw = np.random.default_rng(seed)
        sequences = [draw.integers(0, 3, draw.integers(2, 60))]
        for _ in range(draw.integers(0, 12)):
            other = sequences[draw.integers(len(sequences))]
            sequences.append(np.concatenate([other[: draw.integers(0, len(other))], draw.integers(0, 3, 1 + seed)]))
        yield sequences


def histories(pack, pieces):
    """Returns for each output of the calls the tokens of the prefix and of the nodes that its state has seen."""
    kept = {PREFIX: tuple(pack.prefix.tolist() if pack.prefix is not None else ())}
    seen = []
    for number, call in enumerate(pieces.calls):
        for row, nodes in enumerate(call.nodes.tolist()):
            before = () if call.before is None else kept[call.before[row]]
            seen += [before + tuple(pack.token_ids[nodes[: end + 1]].tolist()) for end in range(len(nodes))]
        if call.is_kept:
            assert len(call.nodes) == 1
            kept[number] = seen[-1]
    return [seen[place] for place in pieces.order.tolist()]


@pytest.mark.parametrize(("max_tokens", "untrained"), [(10_000, 0), (40, 9)])
def test_each_node_is_computed_from_the_tokens_of_its_own_sequence(max_tokens, untrained):
    for sequences in [forks(), *some_tries()]:
        long = [ids for ids in sequences if len(ids) > untrained + 1]
        for pack in packs_of(long, max_tokens, untrained) if long else []:
            pieces = cut(pack.depths, CPU, has_prefix=pack.prefix is not None)
            found = histories(pack, pieces)
            whole = {tuple(long[sample].tolist()) for sample in pack.samples.tolist()}
            for node, tokens in enumerate(found):
                assert len(tokens) == pack.depths[node] + 1
                assert tokens[-1] == pack.token_ids[node]
                assert any(ids[: len(tokens)] == tokens for ids in whole)


def test_no_call_that_begins_with_a_state_has_a_single_token_and_little_is_computed_twice():
    for sequences in [forks(), *some_tries()]:
        (pack,) = packs_of(sequences, 10_000)
        pieces = cut(pack.depths, CPU, has_prefix=False)
        for call in pieces.calls:
            assert call.before is None or call.nodes.shape[1] >= LEAST_TOKENS
        lengths = [call.nodes.numel() for call in pieces.calls]
        branches = sum(len(call.nodes) for call in pieces.calls)
        assert sum(lengths) <= MAX_PADDING * (len(pack.depths) + LEAST_TOKENS * branches)


def test_replies_to_one_prompt_are_computed_in_one_call_after_that_of_the_prompt():
    draw = np.random.default_rng(0)
    prompt = draw.integers(0, 99, 512)
    (pack,) = packs_of([np.concatenate([prompt, [n], draw.integers(0, 99, 60 + n)]) for n in range(8)], 10_000)
    first, second = cut(pack.depths, CPU, has_prefix=False).calls
    assert (tuple(first.nodes.shape), first.before, first.is_kept) == ((1, 512), None, True)
    assert (len(second.nodes), second.before, second.is_kept) == (8, (0,) * 8, False)


def test_the_state_of_one_chain_is_kept_on_demand_without_padding():
    (call,) = cut(np.arange(1), CPU, has_prefix=False, keep=True).calls
    assert (tuple(call.nodes.shape), call.before, call.is_kept) == ((1, 1), None, True)
    (call,) = cut(np.arange(7), CPU, has_prefix=False).calls
    assert (tuple(call.nodes.shape), call.before, call.is_kept) == ((1, 7), None, False)
