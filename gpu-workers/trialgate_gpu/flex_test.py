"""Compares the attention of GPUs with that of CPUs, on a CPU. CUDA's own kernels are not measured here."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers.modeling_flash_attention_utils as utils
from torch.nn.attention.flex_attention import create_block_mask

from . import attention
from .attention import Plan, Variant, attend, kernel_of, make_plan
from .families_test import TRAINED, make
from .flex import FlexTrie, subtree_ends
from .pack import chain, make_packs
from .policy import Policy
from .prefix import Prefixes, PrefixStates
from .self_check import TOLERANCE, check_model

CPU = torch.device("cpu")


@pytest.fixture
def use_flex(monkeypatch):
    """Makes a CPU compute as a GPU does. PyTorch has FlexAttention's backward pass for CPUs, but bars it."""
    monkeypatch.setattr(attention, "has_flex", lambda device: True)
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)


def random_chains(seed, sequences=12, longest=90):
    """Returns sequences that branch off each other at random places."""
    draw = np.random.default_rng(seed)
    made = [draw.integers(0, 50, longest)]
    for _ in range(sequences - 1):
        parent = made[draw.integers(len(made))]
        kept = parent[: draw.integers(0, len(parent))]
        made.append(np.concatenate([kept, draw.integers(0, 50, draw.integers(2, longest))]))
    return [chain(n, ids, np.arange(len(ids)) > 0, np.zeros(len(ids), np.float32), 1.0) for n, ids in enumerate(made)]


def random_pack(seed, **shape):
    (pack,) = make_packs(random_chains(seed, **shape), 1 << 30)
    return pack


def prefixed_pack(seed):
    """Returns a pack behind a prefix of 40 tokens that it shares with another pack."""
    draw = np.random.default_rng(seed)
    prompt = draw.integers(0, 50, 41)
    chains = []
    for n in range(6):
        ids = np.concatenate([prompt, draw.integers(0, 50, 60)])
        chains.append(chain(n, ids, np.arange(len(ids)) > 40, np.zeros(len(ids), np.float32), 1.0))
    return next(pack for pack in make_packs(chains, 150) if pack.prefix is not None)


def ancestors(depths):
    """Returns [nodes, nodes]: whether a node (column) is an ancestor of a node (row) or that node itself."""
    seen = np.zeros((len(depths), len(depths)), bool)
    path = []
    for node, depth in enumerate(depths):
        path = [*path[:depth], node]
        seen[node, path] = True
    return seen


@pytest.mark.parametrize("seed", range(8))
def test_a_key_is_visible_to_its_own_node_and_its_descendants_only(seed):
    depths = random_pack(seed).depths
    nodes = np.arange(len(depths))
    found = (nodes <= nodes[:, None]) & (nodes[:, None] < subtree_ends(depths))
    assert (found == ancestors(depths)).all()


@pytest.mark.parametrize("window", [None, 1, 50, 200])
@pytest.mark.parametrize("case", ["tree", "long tree", "prefix", "many short"])
def test_the_blocks_of_a_mask_are_those_that_pytorch_finds_by_looking_at_every_pair(case, window):
    pack = {
        "tree": lambda: random_pack(3),
        "long tree": lambda: random_pack(4, sequences=5, longest=500),
        "prefix": lambda: prefixed_pack(5),
        "many short": lambda: random_pack(6, sequences=60, longest=9),
    }[case]()
    # Behind a long prefix whole blocks of keys are visible.
    before = 0 if pack.prefix is None else 300
    trie = FlexTrie(pack.depths - (0 if pack.prefix is None else len(pack.prefix)) + before, before, CPU)
    found = trie.mask(window)
    queries, keys = found.seq_lengths
    expected = create_block_mask(found.mask_mod, None, None, queries, keys, device="cpu")
    # With a sliding window a block may be looked at of which nothing is visible, and none may be left out.
    assert found.to_dense().ge(expected.to_dense()).all()
    assert _full_blocks(expected).ge(_full_blocks(found)).all()
    if window is None:
        assert found.to_dense().equal(expected.to_dense())
        assert _full_blocks(found).equal(_full_blocks(expected))


def _full_blocks(mask):
    """Returns [query blocks, key blocks]: whether the kernel takes all pairs of a block as visible."""
    counts, order = mask.full_kv_num_blocks[0, 0], mask.full_kv_indices[0, 0]
    found = torch.zeros(order.shape, dtype=torch.int32)
    for row, count in enumerate(counts.tolist()):
        found[row, order[row, :count].long()] = 1
    return found


VARIANTS = {
    "plain": {},
    "window": {"sliding_window": 20},
    "softcap": {"softcap": 2.0},
    "sinks": {"s_aux": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    "window, softcap, sinks": {"sliding_window": 20, "softcap": 3.0, "s_aux": torch.tensor([0.5, -1.0, 2.0, 0.0])},
}


def outputs(pack, plan, kind, seed=0):
    """Returns a layer's output and its gradients by query, key and value, and by sinks and the prefix if there are."""
    torch.manual_seed(seed)
    count = len(pack.token_ids)
    states = [torch.randn(1, heads, count, 8, requires_grad=True) for heads in (4, 2, 2)]
    leaves = list(states)
    layer = torch.nn.Identity()
    if pack.prefix is not None:
        made = [torch.randn(1, 2, len(pack.prefix), 8, requires_grad=True) for _ in range(2)]
        plan = replace(plan, prefix=PrefixStates())
        plan.prefix.keep(layer, *made)
        leaves += plan.prefix.of(layer)
    settings = dict(VARIANTS[kind])
    if "s_aux" in settings:
        settings["s_aux"] = settings["s_aux"].clone().requires_grad_()
        leaves.append(settings["s_aux"])
    out, _ = attend(layer, *states, None, trie_plan=plan, scaling=0.4, **settings)
    gradients = torch.autograd.grad(out, leaves, torch.randn(out.shape))
    return [out.detach(), *gradients]


@pytest.mark.parametrize("kind", VARIANTS)
@pytest.mark.parametrize("case", [("tree", 0), ("tree", 1), ("prefix", 2)], ids=str)
def test_flex_attention_gives_the_outputs_and_gradients_of_plain_attention_on_a_trie(case, kind, use_flex, monkeypatch):
    pack = (random_pack if case[0] == "tree" else prefixed_pack)(case[1])
    flexed = outputs(pack, make_plan(pack, CPU, lambda: None), kind)
    monkeypatch.setattr(attention, "has_flex", lambda device: False)
    plain = outputs(pack, make_plan(pack, CPU, lambda: None), kind)
    for one, other in zip(flexed, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3_text", "gpt_oss", "deepseek_v3"])
def test_a_model_with_flex_attention_passes_the_trainers_check_of_models(name, tmp_path, use_flex):
    found = check_model(Policy(make(tmp_path, name, TRAINED[name]), CPU), tmp_path)
    assert max(found.values()) <= TOLERANCE / 100


def test_the_policys_gradient_is_the_same_with_flex_attention_behind_a_shared_prompt(tmp_path, use_flex, monkeypatch):
    folder = make(tmp_path, "llama", {})
    draw = np.random.default_rng(0)
    prompt = draw.integers(0, 50, 41)
    chains = []
    for n in range(6):
        ids = np.concatenate([prompt, draw.integers(0, 50, 60)])
        chains.append(chain(n, ids, np.arange(len(ids)) > 40, np.zeros(len(ids), np.float32), 1.0))
    gradients = []
    for is_flex in (True, False):
        monkeypatch.setattr(attention, "has_flex", lambda device, is_flex=is_flex: is_flex)
        policy, prefixes = Policy(folder, CPU, torch.float32), Prefixes()
        total = policy.start_gradient()
        for pack in make_packs(chains, 150):
            assert pack.prefix is not None
            policy.backward(pack, prefixes, lambda tokens, _: torch.linspace(-1, 1, len(tokens)), by_sequence=True)
            prefixes.states.collect()
        prefixes.end()
        gradients.append(total)
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[1].norm()


class OnGpu(torch.Tensor):
    """Says that it is on a GPU."""

    device = torch.device("cuda", 0)


def test_a_gpu_uses_flash_for_sequences_that_share_nothing_flex_for_tries_and_neither_is_used_on_a_cpu(monkeypatch):
    separate = random_pack(0, sequences=1)
    tree = random_pack(1)
    states = [torch.randn(1, heads, 4, 8).to(torch.bfloat16) for heads in (4, 2, 2)]
    on_gpu = [each.as_subclass(OnGpu) for each in states]
    plain, sinks = Variant(None, None, None, None), Variant(None, None, None, torch.zeros(4))
    windowed = Variant(None, 5, None, None)
    cpu_plans = {name: make_plan(pack, CPU, lambda: None) for name, pack in (("one", separate), ("tree", tree))}
    monkeypatch.setattr(attention, "has_flex", lambda device: True)
    plans = {name: make_plan(pack, CPU, lambda: None) for name, pack in (("one", separate), ("tree", tree))}

    monkeypatch.setattr(attention, "has_flash", lambda: True)
    assert kernel_of(plans["one"], *on_gpu, plain) == kernel_of(plans["one"], *on_gpu, windowed) == "flash"
    assert kernel_of(plans["one"], *on_gpu, sinks) == "flex"
    assert kernel_of(plans["one"], *(each.float() for each in on_gpu), plain) == "sdpa"
    assert kernel_of(plans["tree"], *on_gpu, plain) == "flex"
    assert kernel_of(cpu_plans["one"], *states, plain) == "sdpa"
    assert kernel_of(cpu_plans["one"], *states, windowed) == kernel_of(cpu_plans["tree"], *states, plain) == "buckets"

    monkeypatch.setattr(attention, "has_flash", lambda: False)
    assert kernel_of(plans["one"], *on_gpu, plain) == "sdpa"
    assert kernel_of(plans["one"], *on_gpu, windowed) == "flex"


def test_flash_attention_is_given_each_sequence_for_itself(monkeypatch):
    """The kernel is PyTorch's in place of flash-attn's: transformers' own code in between is the real one."""
    draw = np.random.default_rng(0)
    chains = []
    for n, length in enumerate((31, 8, 20)):
        ids = np.concatenate([[n], draw.integers(0, 50, length)])
        chains.append(chain(n, ids, np.arange(len(ids)) > 0, np.zeros(len(ids), np.float32), 1.0))
    (pack,) = make_packs(chains, 1 << 30)
    assert pack.starts.tolist() == [0, 31, 39, 59] and not pack.is_chain

    def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale, **more):
        assert causal and max_seqlen_q == max_seqlen_k == 31 and cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
        parts = []
        for first, end in zip(cu_seqlens_q.tolist(), cu_seqlens_k.tolist()[1:], strict=False):
            one = (each[first:end].transpose(0, 1) for each in (q, k, v))
            found = torch.nn.functional.scaled_dot_product_attention(
                *one, is_causal=True, scale=softmax_scale, enable_gqa=True
            )
            parts.append(found.transpose(0, 1))
        return torch.cat(parts)

    plan: Plan = make_plan(pack, CPU, lambda: None)
    plain = outputs(pack, plan, "plain")
    functions = utils._lazy_define_process_function(varlen)
    monkeypatch.setattr(
        utils, "lazy_import_flash_attention", lambda *_: ((None, varlen, None, None, None), (functions, None))
    )
    monkeypatch.setattr(attention, "kernel_of", lambda *_: "flash")
    for one, other in zip(outputs(pack, plan, "plain"), plain, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)
