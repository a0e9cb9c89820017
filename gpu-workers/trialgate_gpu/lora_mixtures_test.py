"""Tests adapters of mixtures of experts. transformers joins the experts to tensors that are no linear layers."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from conftest import Run

from .errors import GpuWorkerError
from .families_test import MIXTURES, TRAINED, make
from .lora_test import base_of, fresh, logprobs_of, step
from .manifest import ADAPTER, ADAPTER_CONFIG
from .merge import merge

ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
# vLLM would serve an adapter without the part of `kv_b_proj`.
LATENT_ATTENTION = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"}
DENSE = {"gate_proj", "up_proj", "down_proj"}
ALL = {
    "gpt_oss": ATTENTION,
    "mixtral": ATTENTION,
    "qwen3_moe": ATTENTION,
    # Their first layer is dense, and the others have shared experts.
    "deepseek_v3": LATENT_ATTENTION | DENSE,
    "glm4_moe": ATTENTION | DENSE,
}


@pytest.fixture
def run_of(make_run, tmp_path):
    def of(name):
        run = make_run(name)
        run.model = make(tmp_path / name / "model", name, TRAINED[name], torch.bfloat16)
        return run

    return of


@pytest.fixture(scope="module")
def all_linear(tmp_path_factory):
    """Returns a run of a mixture whose adapter is on `all-linear`, its version 0 and its first step."""

    @cache
    def of(name):
        folder = tmp_path_factory.mktemp(name)
        run = Run(folder / "home", make(folder / "model", name, TRAINED[name], torch.bfloat16))
        base = base_of(run, trainer := fresh())
        return run, base, step(run, trainer, base)

    return of


def adapted(checkpoint):
    """Returns the names of the layers that have an adapter in a checkpoint's file."""
    names = load_file(Path(checkpoint) / ADAPTER)
    return {name.removeprefix("base_model.model.").partition(".lora_")[0] for name in names}


@pytest.mark.parametrize("name", MIXTURES)
def test_all_linear_gives_an_adapter_to_attention_dense_layers_and_shared_experts_but_not_to_experts_and_routers(
    all_linear, name
):
    _, base, _ = all_linear(name)
    layers = adapted(base["checkpoint"])
    assert {layer.rsplit(".", 1)[-1] for layer in layers} == ALL[name]
    assert not [layer for layer in layers if ".experts" in layer or layer.endswith((".gate", ".router"))]


# Some names are also those of experts: peft would look for an adapter there.
CHOSEN = [(name, None) for name in MIXTURES]
CHOSEN += [("glm4_moe", ["down_proj", "q_proj"]), ("deepseek_v3", ["shared_experts.gate_proj", "o_proj"])]


@pytest.mark.parametrize(("name", "targets"), CHOSEN, ids=str)
def test_a_step_of_a_mixtures_adapter_gives_one_that_peft_loads_and_that_the_merged_export_has(
    all_linear, run_of, trainer, tmp_path, name, targets
):
    if targets is None:
        run, base, made = all_linear(name)
    else:
        run = run_of(name)
        base = base_of(run, trainer, target_modules=targets)
        made = step(run, trainer, base, target_modules=targets)
    changed, before = (load_file(Path(each["checkpoint"]) / ADAPTER) for each in (made, base))
    assert all(not torch.equal(changed[name], before[name]) for name in changed if "lora_B" in name)

    (merged := tmp_path / "merged").mkdir()
    merge(Path(made["checkpoint"]), merged)
    of_base, exported = (load_file(folder / "model.safetensors") for folder in (run.model, merged))
    assert {name: each.shape for name, each in exported.items()} == {name: each.shape for name, each in of_base.items()}
    moved = {name for name in of_base if not torch.equal(exported[name], of_base[name])}
    assert moved == {f"{layer}.weight" for layer in adapted(made["checkpoint"])}

    model = AutoModelForCausalLM.from_pretrained(run.model, dtype=torch.float32)
    without = logprobs_of(model)
    adapter = logprobs_of(PeftModel.from_pretrained(model, made["checkpoint"]))
    found = logprobs_of(AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32))
    # The merged weights are rounded to bfloat16.
    assert (found - adapter).abs().mean() < 0.2 * (adapter - without).abs().mean()


@pytest.mark.parametrize("name", MIXTURES)
def test_peft_finds_in_the_file_of_a_mixtures_adapter_each_weight_that_it_looks_for(all_linear, name):
    run, _, first = all_linear(name)
    made = first["checkpoint"]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(run.model), made)
    file = load_file(Path(made) / ADAPTER)
    loaded = {n.replace(".default.", "."): p for n, p in model.named_parameters() if ".lora_" in n}
    assert loaded.keys() == file.keys()
    assert all(torch.equal(each.bfloat16(), file[name]) for name, each in loaded.items())


@pytest.mark.parametrize(("name", "target"), [("qwen3_moe", "experts"), ("mixtral", "gate"), ("glm4_moe", "gate")])
def test_experts_and_routers_as_target_modules_are_refused_with_the_names_of_the_linear_layers(run_of, name, target):
    with pytest.raises(GpuWorkerError, match=rf"mlp\.{target}, which is no linear layer: a {name} has .*q_proj"):
        base_of(run_of(name), fresh(), target_modules=[target])


def test_the_layer_of_a_latent_attention_whose_adapter_vllm_does_not_apply_is_refused_as_a_target_module(run_of):
    with pytest.raises(GpuWorkerError, match=r"kv_b_proj, whose adapter vLLM does not apply: a deepseek_v3"):
        base_of(run_of("deepseek_v3"), fresh(), target_modules=["kv_b_proj", "o_proj"])


def test_the_settings_of_a_model_without_experts_name_no_parameters(make_run, trainer):
    folder = Path(base_of(make_run(), trainer)["checkpoint"])
    config = json.loads((folder / ADAPTER_CONFIG).read_text())
    assert config["target_parameters"] is None
