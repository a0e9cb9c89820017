"""Compares what a pass is said to need with what PyTorch allocates for it."""

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from ..families_test import EXPERTS, TRAINED, make
from ..lora import Lora, add_adapter
from ..pack import chain, make_packs
from ..policy import Policy
from ..prefix import Prefixes
from .activations import Passes, kept_by_layers
from .placement import recompute_layers

TOKENS, WORDS = 1024, 256
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "vocab_size": WORDS, "head_dim": 16}
MODEL = SHAPE | {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2 * TOKENS}
ADAPTER = Lora(rank=8, alpha=16.0, target_modules="all-linear", seed=0)


def shapes_of(folder):
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))


def peak_of(work):
    """Returns the largest sum of the memory that PyTorch has allocated and not freed while `work` runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    events = [each for each in profiled.profiler.kineto_results.events() if each.name() == "[memory]"]
    sizes = [each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())]
    return int(np.cumsum(sizes).max())


@pytest.mark.parametrize("recompute", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize(("kind", "lora"), [("llama", None), ("llama", ADAPTER), ("qwen3_moe", None)])
def test_the_sum_of_a_pass_is_what_it_allocates(tmp_path, kind, recompute, lora):
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "mlp_only_layers": []}
    folder = make(tmp_path / "model", kind, MODEL | (experts if kind == "qwen3_moe" else {}))
    policy = Policy(folder, torch.device("cpu"), torch.float32, lora)
    if recompute:
        recompute_layers(policy.model)
    policy.start_gradient()
    ids, trained = np.arange(TOKENS) % WORDS, np.arange(TOKENS) >= TOKENS // 2
    rollout, advantages = np.zeros(TOKENS, np.float32), np.ones(trained.sum())
    (pack,) = make_packs([chain(0, ids, trained, rollout, 1.0, advantages=advantages)], TOKENS)

    def work():
        policy.backward(pack, Prefixes(), lambda _, logprobs: 0.01 * torch.ones_like(logprobs), by_sequence=False)

    model = shapes_of(folder)
    if lora:
        add_adapter(model, lora)
    ratio = peak_of(work) / sum(Passes(model, torch.float32, recompute=recompute).parts(TOKENS).values())
    # The experts of a mixture are counted in bfloat16.
    least, most = (0.7, 3.0) if kind == "qwen3_moe" else (0.7, 1.4)
    assert least < ratio < most


@pytest.mark.parametrize("name", TRAINED)
def test_the_layers_of_every_family_keep_something(tmp_path, name):
    layers, outside = kept_by_layers(shapes_of(make(tmp_path / "model", name, TRAINED[name])), torch.float32)
    assert min(layers) > 0 and outside > 0


def test_a_family_that_cannot_run_without_numbers_is_not_refused_for_it(tmp_path):
    model = shapes_of(make(tmp_path / "model", "jetmoe", EXPERTS))
    with pytest.raises(NotImplementedError):
        kept_by_layers(model, torch.float32)
    assert Passes(model, torch.float32, recompute=False).of_tokens(10) > 0


def test_a_llamas_layer_keeps_what_the_formula_says(tmp_path):
    model = shapes_of(make(tmp_path / "model", "llama", MODEL))
    layers, _ = kept_by_layers(model, torch.bfloat16)
    width, between, queries, keys, number = 64, 128, 64, 32, 2
    formula = 2 * (4 + number) * width + 2 * number * width + number * (2 * queries + 2 * keys) + 4 * number * between
    # Norms also keep a number for each token, and layers share rotary tables.
    assert layers[-1] == pytest.approx(formula, rel=0.02)
