"""Tests tiny random models of every supported family, and the refusal of unsupported ones."""

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMultimodalLM, PreTrainedModel

from conftest import LORA, two_groups

from . import attention, checkpoint, multimodal
from . import policy as policy_module
from .errors import GpuWorkerError
from .gradient_check import gradient_deviation
from .group.sharded_policy import ShardedPolicy
from .group.world import World
from .head import backward_through_head, token_logprobs
from .load_base import load_base
from .logit_shape import PLAIN, LogitShape
from .measure_canary import canary_token_ids
from .merge import merge
from .multimodal import text_config
from .pack import chain, make_packs
from .policy import Policy
from .progress import Progress
from .self_check import TOLERANCE, check_model
from .tensor_file import INDEX, read_tensor, stored_tensors
from .train_step_test import fresh

CPU = torch.device("cpu")
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROUTER = {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "head_dim": 4,
}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
LINEAR = HYBRID | {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_chunk_size": 64}
TRAINED = {
    "llama": {},
    "llama with a tied head": {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": {"sliding_window": 40},
    "qwen2": {},
    "qwen3": {},
    "gemma3_text": {"sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"]},
    "olmo2": {},
    "phi": {},
    "gpt_oss": EXPERTS | {"sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"]},
    "mixtral": EXPERTS,
    "qwen3_moe": EXPERTS | {"mlp_only_layers": []},
    "deepseek_v3": EXPERTS | ROUTER | LATENT,
    "glm4_moe": EXPERTS | ROUTER,
    "granite": {"logits_scaling": 8.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.4},
    "granitemoe": EXPERTS | {"logits_scaling": 8.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.4},
    "gemma2": {"sliding_window": 40, "query_pre_attn_scalar": 8, "final_logit_softcapping": 3.0},
    "gemma3_text with a cap": {
        "model_type": "gemma3_text",
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention"],
        "final_logit_softcapping": 3.0,
    },
    "cohere": {"logit_scale": 0.25},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"]},
    "hyperclovax": {"logits_scaling": 0.25},
    "minicpm3": LATENT | {"dim_model_base": 8},
    "nanochat": {"final_logit_softcapping": 3.0},
    "gemma4_text": {
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention"],
        "final_logit_softcapping": 3.0,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 64,
        "num_kv_shared_layers": 0,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": EXPERTS | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "qwen3_next": EXPERTS | LINEAR | {"shared_expert_intermediate_size": 16},
    "qwen3_5_text": LINEAR,
    "qwen3_5_moe_text": EXPERTS | LINEAR | {"shared_expert_intermediate_size": 16},
    "olmo_hybrid": LINEAR,
    "kimi_linear": EXPERTS | ROUTER | LATENT | {"linear_head_dim": 8, "linear_num_heads": 4} | HYBRID,
    "bamba": MAMBA | {"attn_layer_indices": [1]},
    "granitemoehybrid": EXPERTS | MAMBA | HYBRID | {"shared_intermediate_size": 32, "logits_scaling": 8.0},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64, "lm_head_multiplier": 0.25},
    "nemotron_h": ROUTER
    | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "ssm_state_size": 16,
        "n_groups": 2,
        "chunk_size": 64,
    },
}
SHAPED = ("granite", "granitemoe", "gemma2", "gemma3_text with a cap", "cohere", "cohere2", "hyperclovax", "nanochat")
HYBRIDS = ("lfm2", "qwen3_next", "qwen3_5_text", "granitemoehybrid")
MIXTURES = ("gpt_oss", "mixtral", "qwen3_moe", "deepseek_v3", "glm4_moe")
TOWER = {"hidden_size": 32, "intermediate_size": 64, "image_size": 28, "patch_size": 14} | {
    name: 1 for name in ("num_hidden_layers", "depth")
}
VISION = TOWER | {"num_attention_heads": 4, "head_dim": 8}
# Multimodal models: the configurations of their text models and of their towers, and what else they have.
MULTIMODAL = {
    "gemma3": (TRAINED["gemma3_text"] | {"model_type": "gemma3_text"}, VISION, {"mm_tokens_per_image": 4}),
    "qwen3_5": (
        LINEAR | {"model_type": "qwen3_5_text"},
        TOWER | {"num_heads": 4, "out_hidden_size": 32, "num_position_embeddings": 16, "spatial_merge_size": 1},
        {},
    ),
    "mistral3": ({"model_type": "mistral"}, VISION | {"model_type": "pixtral"}, {}),
    "gemma4": (
        TRAINED["gemma4_text"] | {"model_type": "gemma4_text"},
        VISION | {"num_key_value_heads": 4, "position_embedding_size": 16},
        {},
    ),
    "qwen3_5_moe": (
        TRAINED["qwen3_5_moe_text"] | {"model_type": "qwen3_5_moe_text"},
        TOWER | {"num_heads": 4, "out_hidden_size": 32, "num_position_embeddings": 16, "spatial_merge_size": 1},
        {},
    ),
}
REFUSED = {
    "mamba": ({}, "linear_attention"),
    "jamba": (EXPERTS, "linear_attention"),
    "gemma2": ({"final_logit_softcapping": -3.0}, "final_logit_softcapping"),
    "llama4_text": (EXPERTS | {"attention_chunk_size": 128, "layer_types": None}, "attention_chunk_size|chunk"),
    "llama": ({"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}}, "dynamic"),
}


def make(folder: Path, name: str, settings: dict, dtype: torch.dtype = torch.float32) -> Path:
    torch.manual_seed(0)
    settings = SMALL | settings
    kind = settings.pop("model_type", name)
    config = AutoConfig.for_model(kind, **settings)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    for buffer_name, buffer in model.named_buffers():
        if "bias" in buffer_name:
            buffer.copy_(torch.linspace(-0.4, 0.6, buffer.numel()).view(buffer.shape))
    model.to(dtype).save_pretrained(folder)
    return folder


def make_multimodal(folder: Path, name: str, **more: Any) -> PreTrainedModel:
    """Writes a small random multimodal model in bfloat16, with the settings of its images."""
    torch.manual_seed(0)
    text, vision, own = MULTIMODAL[name]
    config = AutoConfig.for_model(name, text_config=SMALL | text, vision_config=vision, **own | more)
    model = AutoModelForMultimodalLM.from_config(config).to(torch.bfloat16)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    if name == "qwen3_5_moe":
        # Its released files have the experts of a layer as one tensor.
        save_file(
            {n: t.contiguous() for n, t in model.state_dict().items()}, folder / "model.safetensors", {"format": "pt"}
        )
    (folder / "preprocessor_config.json").write_text('{"size": 28}')
    return model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of a model in float32, which tests only read."""
    return cache(lambda name: make(tmp_path_factory.mktemp("made"), name, TRAINED[name]))


@pytest.fixture
def tensor_of():
    def read(folder: str | Path, ending: str) -> torch.Tensor:
        ((name, path),) = [(n, p) for n, p in stored_tensors(Path(folder)).items() if n.endswith(ending)]
        with safe_open(path, "pt") as file:
            return file.get_tensor(name)

    return read


@pytest.mark.parametrize("name", TRAINED)
def test_a_supported_model_gives_the_same_log_probabilities_in_a_pack_alone_and_in_transformers(name, made):
    policy = Policy(made(name), CPU)
    found = check_model(policy, made(name))
    assert max(found.values()) <= TOLERANCE / 100


@pytest.mark.parametrize("name", TRAINED)
def test_the_trainers_gradient_of_a_supported_model_equals_that_of_pytorch_autograd_without_packs(name, made):
    policy = Policy(made(name), CPU, torch.float32)
    assert gradient_deviation(policy) <= 1e-4


@pytest.mark.parametrize("name", SHAPED)
def test_a_model_whose_head_scales_or_caps_its_logits_would_not_pass_without_that(name, made, monkeypatch):
    policy = Policy(made(name), CPU, torch.float32)
    monkeypatch.setattr(LogitShape, "of", lambda _: PLAIN)
    assert gradient_deviation(policy) > 0.1
    with pytest.raises(GpuWorkerError, match="its attention or its head is of another kind"):
        check_model(policy, made(name))


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsupported_model_is_refused_with_its_type_and_the_reason(name, tmp_path, make_run, trainer):
    settings, reason = REFUSED[name]
    run = make_run()
    run.model = make(tmp_path / "model", name, settings)
    with pytest.raises(GpuWorkerError, match=rf"\({name}\) cannot be trained: .*({reason})") as caught:
        run.base(trainer)
    assert (caught.value.kind, caught.value.retryable) == ("BadModel", False)


@pytest.mark.parametrize("name", ["llama", "llama with a tied head", "phi", "granite", "gemma2", *HYBRIDS, *MIXTURES])
def test_a_checkpoint_has_its_base_models_tensor_names_and_gives_the_trainers_log_probabilities_when_loaded(
    name, tmp_path, make_run
):
    base_model = make(tmp_path / "model", name, TRAINED[name], torch.bfloat16)
    run, trainer = make_run(), fresh()
    run.model = base_model
    parent = run.base(trainer)
    made = trainer.train_step(run.request(parent["checkpoint"], two_groups()), Progress())

    before, after = (load_file(Path(f) / "model.safetensors") for f in (base_model, made["checkpoint"]))
    assert {n: t.shape for n, t in after.items()} == {n: t.shape for n, t in before.items()}
    assert any(not after[n].equal(before[n]) for n in before)
    ids = made["canary"]["token_ids"]
    model = AutoModelForCausalLM.from_pretrained(made["checkpoint"], dtype=torch.float32)
    logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
    assert (logprobs - torch.tensor(made["canary"]["logprobs"])).abs().mean() < 0.1
    # The next step gives the same weights whether this step's state stayed in memory or is loaded.
    two = [
        t.train_step(run.request(made["checkpoint"], two_groups()[1:], version), Progress())
        for t, version in ((trainer, 2), (fresh(), 2))
    ]
    assert two[0]["checkpoint_sha256"] == two[1]["checkpoint_sha256"]


def tensors_of(folder: str | Path) -> dict[str, torch.Tensor]:
    return {name: read_tensor(path, name) for name, path in stored_tensors(Path(folder)).items()}


def loaded_whole(folder: str | Path) -> PreTrainedModel:
    """Loads a checkpoint with transformers' multimodal class, and requires that it lacks nothing."""
    model, info = AutoModelForMultimodalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"] and not info["unexpected_keys"]
    return model


def logprobs_of_whole(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    return logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]


@pytest.mark.parametrize("name", MULTIMODAL)
def test_the_text_model_of_a_multimodal_checkpoint_is_trained_and_all_else_is_written_as_it_was(
    name, tmp_path, make_run
):
    whole = make_multimodal(tmp_path / "model", name)
    run, trainer = make_run(), fresh()
    run.model = tmp_path / "model"
    parent = run.base(trainer)
    base = loaded_whole(parent["checkpoint"])
    ids = parent["canary"]["token_ids"][:100]
    expected = torch.tensor(parent["canary"]["logprobs"])[:99]
    torch.testing.assert_close(logprobs_of_whole(base, ids), expected, atol=1e-3, rtol=0)
    made = trainer.train_step(run.request(parent["checkpoint"], two_groups()), Progress())

    before, after = tensors_of(run.model), tensors_of(made["checkpoint"])
    assert {n: (t.shape, t.dtype) for n, t in after.items()} == {n: (t.shape, t.dtype) for n, t in before.items()}
    own = {n for n in before if "language_model" in n or n == "lm_head.weight"}
    assert 0 < len(own) < len(before)
    assert all(after[n].equal(before[n]) for n in before.keys() - own)
    assert sum(not after[n].equal(before[n]) for n in own) > len(own) / 2
    trained = loaded_whole(made["checkpoint"])
    assert type(trained) is type(whole)
    found = logprobs_of_whole(trained, ids)
    torch.testing.assert_close(found, torch.tensor(made["canary"]["logprobs"])[:99], atol=1e-3, rtol=0)
    assert not torch.allclose(found, expected, atol=1e-2)
    assert (Path(made["checkpoint"]) / "preprocessor_config.json").read_text() == '{"size": 28}'
    configs = [json.loads((Path(f) / "config.json").read_text()) for f in (run.model, made["checkpoint"])]
    assert configs[1] == configs[0] | {"dtype": "bfloat16"}
    if name == "mistral3":
        # The next step gives the same weights whether this step's state stayed in memory or is loaded.
        second = run.request(made["checkpoint"], two_groups()[1:], 2)
        two = [each.train_step(second, Progress()) for each in (trainer, fresh())]
        assert two[0]["checkpoint_sha256"] == two[1]["checkpoint_sha256"]


def test_a_multimodal_checkpoint_whose_tower_has_no_weights_is_trained_and_stays_without_them(tmp_path, make_run):
    make_multimodal(tmp_path / "model", "gemma3")
    file = tmp_path / "model" / "model.safetensors"
    save_file({n: t for n, t in load_file(file).items() if "language_model" in n}, file, metadata={"format": "pt"})
    run, trainer = make_run(), fresh()
    run.model = tmp_path / "model"
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    assert tensors_of(made["checkpoint"]).keys() == tensors_of(run.model).keys()


def test_a_multimodal_checkpoint_of_several_files_is_written_as_several_with_the_size_of_its_tensors(
    tmp_path, make_run, monkeypatch
):
    whole = make_multimodal(folder := tmp_path / "model", "gemma3")
    (folder / "model.safetensors").unlink()
    whole.model.vision_tower.float()
    whole.save_pretrained(folder, max_shard_size="20KB")
    monkeypatch.setattr(checkpoint, "LARGEST_FILE", 20_000)
    run, trainer = make_run(), fresh()
    run.model = folder
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())

    before, after = tensors_of(folder), tensors_of(made["checkpoint"])
    assert {n: (t.shape, t.dtype) for n, t in after.items()} == {n: (t.shape, t.dtype) for n, t in before.items()}
    assert all(after[n].equal(before[n]) for n in before if "language_model" not in n)
    index = json.loads((Path(made["checkpoint"]) / INDEX).read_text())
    assert index["weight_map"].keys() == after.keys() and len(set(index["weight_map"].values())) > 2
    size = sum(t.nbytes for t in after.values())
    assert index["metadata"]["total_size"] == size
    policy = Policy(folder, CPU)
    needed = checkpoint.state_bytes(policy, folder)
    assert needed == size + 3 * policy.master.nbytes + checkpoint.SPARE_BYTES


@pytest.mark.parametrize(
    ("rename", "why"),
    [
        (lambda name: name.replace("language_model.", "brain."), r"loads its text model's .* from none .*brain\."),
        (lambda name: name.replace("language_model.model.layers.1", "layers.1"), r"layers\.1.* would be model\.layers"),
    ],
)
def test_a_multimodal_checkpoint_whose_text_model_lies_elsewhere_is_refused(tmp_path, make_run, trainer, rename, why):
    make_multimodal(tmp_path / "model", "gemma3")
    file = tmp_path / "model" / "model.safetensors"
    save_file({rename(n): t for n, t in load_file(file).items()}, file, metadata={"format": "pt"})
    run = make_run()
    run.model = tmp_path / "model"
    with pytest.raises(GpuWorkerError, match=why) as caught:
        run.base(trainer)
    assert caught.value.kind == "BadModel"


def test_a_multimodal_model_that_computes_text_otherwise_than_its_text_model_is_refused(tmp_path, make_run, trainer):
    """transformers caps the logits of Gemma 3's text model alone, and not those of the multimodal one."""
    make_multimodal(tmp_path / "model", "gemma3")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["text_config"]["final_logit_softcapping"] = 3.0
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    run = make_run()
    run.model = tmp_path / "model"
    with pytest.raises(GpuWorkerError, match=r"log-probabilities differ from those of transformers"):
        run.base(trainer)


def test_an_adapter_of_a_multimodal_models_text_model_has_the_names_of_the_multimodal_model(tmp_path, make_run):
    make_multimodal(tmp_path / "model", "gemma3")
    run, trainer = make_run(), fresh()
    run.model = tmp_path / "model"
    asked = {"run_id": "run", "model": str(run.model), "home": str(run.home)} | LORA
    parent = load_base(trainer, asked, Progress())["checkpoint"]
    made = trainer.train_step(run.request(parent, two_groups(), **LORA), Progress())
    trainer.settle()
    folder = Path(made["checkpoint"])
    names = load_file(folder / "adapter_model.safetensors").keys()
    assert all(name.startswith("base_model.model.model.language_model.layers.") for name in names)
    # The tower has layers of the same last names.
    adapted = PeftModel.from_pretrained(loaded_whole(run.model), folder).state_dict()
    assert {name.replace(".default.", ".") for name in adapted if ".lora_" in name} == names
    (merged := tmp_path / "merged").mkdir()
    merge(folder, merged)
    assert tensors_of(merged).keys() == tensors_of(run.model).keys()
    ids = made["canary"]["token_ids"][:100]
    found = logprobs_of_whole(loaded_whole(merged), ids)
    assert (found - torch.tensor(made["canary"]["logprobs"])[:99]).abs().mean() < 0.1


@pytest.mark.parametrize("name", ["mistral3", "qwen3_5_moe"])
def test_of_a_multimodal_model_ranks_write_the_same_tensors_as_one_process(name, tmp_path):
    make_multimodal(tmp_path, name)
    expected = Policy(tmp_path, CPU).weights()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        found = ShardedPolicy(tmp_path, CPU, World()).weights()
    finally:
        dist.destroy_process_group()
    assert found.keys() == expected.keys()
    assert all(found[name].equal(tensor) for name, tensor in expected.items())


def test_where_the_two_configurations_differ_in_whether_the_head_is_tied_the_files_decide(tmp_path):
    make_multimodal(tmp_path, "mistral3", tie_word_embeddings=False)
    before = tensors_of(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert not config["text_config"].get("tie_word_embeddings")
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    weights = Policy(tmp_path, CPU).weights()
    assert all(weights[name].equal(before[name]) for name in weights)
    assert "language_model.lm_head.weight" in weights


def test_where_the_whole_configuration_does_not_say_whether_the_head_is_tied_that_of_the_text_does():
    config = AutoConfig.for_model("voxtral")
    assert not hasattr(config, "tie_word_embeddings")
    for tied in (True, False):
        config.text_config.tie_word_embeddings = tied
        assert text_config(config, ["language_model.lm_head.weight"]).tie_word_embeddings == tied


def test_a_multimodal_checkpoint_whose_class_fails_in_any_way_is_a_bad_model(tmp_path, monkeypatch):
    def fail(_):
        raise AttributeError("no such part\nof the model")

    make_multimodal(tmp_path, "mistral3")
    monkeypatch.setattr(multimodal, "without_weights", fail)
    with pytest.raises(GpuWorkerError, match=r"mistral3\) cannot be trained: .* and no such part; choose") as caught:
        multimodal.read_text_model(tmp_path)
    assert caught.value.kind == "BadModel"


def test_the_canary_has_no_tokens_that_stand_for_images(tmp_path):
    make_multimodal(tmp_path, "gemma3", image_token_index=7, boi_token_index=8)
    config = AutoConfig.from_pretrained(tmp_path)
    drawn = canary_token_ids(tmp_path, config)
    assert {7, 8}.isdisjoint(drawn) and {6, 9} < set(drawn)


@pytest.mark.parametrize("name", ["deepseek_v3", "glm4_moe"])
def test_train_steps_leave_the_router_bias_of_a_mixture_of_experts_unchanged(
    name, tmp_path, make_run, trainer, tensor_of
):
    base_model = make(tmp_path / "model", name, TRAINED[name], torch.bfloat16)
    run = make_run()
    run.model = base_model
    parent = run.base(trainer)["checkpoint"]
    for version in (1, 2):
        parent = trainer.train_step(run.request(parent, two_groups()[version:], version), Progress())["checkpoint"]
    bias = tensor_of(parent, "e_score_correction_bias")
    assert bias.abs().sum() > 0
    assert bias.equal(tensor_of(base_model, "e_score_correction_bias"))


def test_a_checkpoint_keeps_the_base_models_tensors_that_transformers_does_not_load(
    tmp_path, make_run, trainer, tensor_of
):
    folder = make(tmp_path / "model", "llama", {}, torch.bfloat16)
    extra = torch.randn(3, 5)
    save_file(
        load_file(folder / "model.safetensors") | {"model.mtp.weight": extra},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    run = make_run()
    run.model = folder
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    assert tensor_of(made["checkpoint"], "mtp.weight").equal(extra)


def test_a_file_that_the_models_index_does_not_name_is_not_written_into_a_version(tmp_path, make_run, trainer):
    folder = make(tmp_path / "model", "llama", {}, torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    save_file({"norm.weight": torch.ones(32)}, folder / "consolidated.safetensors")
    run = make_run()
    run.model = folder
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    assert tensors_of(made["checkpoint"]).keys() == set(model.state_dict())


@pytest.mark.parametrize("lost", ["model.layers.1.mlp.up_proj.weight", "lm_head.weight"])
def test_a_base_model_whose_files_lack_a_tensor_is_refused_with_the_tensors_name(tmp_path, make_run, trainer, lost):
    folder = make(tmp_path / "model", "llama", {"tie_word_embeddings": False}, torch.bfloat16)
    tensors = load_file(folder / "model.safetensors")
    del tensors[lost]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    run = make_run()
    run.model = folder
    with pytest.raises(GpuWorkerError, match=f"no tensor '{lost}'.*cut short"):
        run.base(trainer)


def test_a_base_model_whose_file_is_truncated_and_one_with_other_shapes_are_refused(tmp_path, make_run, trainer):
    whole = make(tmp_path / "cut", "llama", {}, torch.bfloat16) / "model.safetensors"
    os.truncate(whole, whole.stat().st_size // 2)
    other = make(tmp_path / "other", "llama", {"hidden_size": 64}, torch.bfloat16)
    small = make(tmp_path / "small", "llama", {}, torch.bfloat16)
    shutil.copy(small / "model.safetensors", other / "model.safetensors")
    for folder in (whole.parent, other):
        run = make_run()
        run.model = folder
        with pytest.raises(
            GpuWorkerError, match=r"cannot be loaded .*cut short, or not of its configuration"
        ) as caught:
            run.base(trainer)
        assert caught.value.kind == "BadModel"


def test_a_parent_checkpoint_with_the_optimizer_state_of_another_model_is_refused(tmp_path, make_run, trainer):
    made = []
    for name, layers in (("a", 2), ("b", 3)):
        run = make_run(name)
        run.model = make(tmp_path / f"model-{name}", "llama", {"num_hidden_layers": layers}, torch.bfloat16)
        base = run.base(trainer)
        made.append(Path(trainer.train_step(run.request(base["checkpoint"], two_groups()), Progress())["checkpoint"]))
        trainer.settle()
    shutil.rmtree(made[0] / "trainer")
    shutil.copytree(made[1] / "trainer", made[0] / "trainer")
    with pytest.raises(GpuWorkerError, match=r"the trainer's state in .* is of another checkpoint") as caught:
        fresh().train_step(make_run("a").request(str(made[0]), two_groups()[1:], 2), Progress())
    assert caught.value.kind == "CorruptCheckpoint"


def test_a_train_step_trains_the_output_heads_bias_and_applies_no_weight_decay_to_norm_layers_or_biases(
    tmp_path, make_run, trainer
):
    base_model = make(tmp_path / "model", "phi", TRAINED["phi"])
    run = make_run()
    run.model = base_model
    before = load_file(base_model / "model.safetensors")
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    after = load_file(Path(made["checkpoint"]) / "model.safetensors")
    assert not after["lm_head.bias"].float().equal(before["lm_head.bias"].bfloat16().float())

    policy = Policy(base_model, CPU)
    decayed = {view.data_ptr() for view in policy.decayed()}
    views = policy._views(policy.master)
    assert [n for n, v in views.items() if v.data_ptr() not in decayed] == [n for n, v in views.items() if v.dim() < 2]


def test_the_trainers_gradient_of_the_output_heads_bias_equals_that_of_pytorch_autograd(tmp_path):
    policy = Policy(make(tmp_path, "phi", TRAINED["phi"]), CPU, torch.float32)
    ids = np.arange(5, 25)
    (pack,) = make_packs([chain(0, ids, np.arange(20) > 3, np.zeros(20, np.float32), 0.8)], 100)
    slopes = torch.linspace(-1, 1, len(pack.targets))
    policy.start_gradient()
    hidden = policy.infer(pack)
    backward_through_head(hidden, policy.head, pack, lambda tokens, _: slopes[tokens], policy.head_gradient())
    bias = policy.head.bias.detach().clone().requires_grad_()
    logits = linear(hidden[pack.nodes], policy.head.weight.detach(), bias) / 0.8
    logprobs = logits.log_softmax(1)[torch.arange(16), torch.from_numpy(pack.targets)]
    (logprobs * slopes).sum().backward()
    torch.testing.assert_close(policy.head_gradient().bias, bias.grad)


@pytest.mark.parametrize("name", ["qwen3_next", "lfm2"])
def test_the_trainers_check_of_a_model_refuses_layers_that_carry_state_across_packed_sequences(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(policy_module, "prepare", lambda _: None)
    policy = Policy(make(tmp_path, name, TRAINED[name]), CPU)
    with pytest.raises(GpuWorkerError, match=rf"\({name}\) .* packed sequences differ .* tokens see other sequences"):
        check_model(policy, tmp_path)


def test_the_trainers_check_of_a_model_refuses_one_whose_attention_it_computes_otherwise_than_transformers(
    tmp_path, monkeypatch
):
    policy = Policy(make(tmp_path, "gpt_oss", TRAINED["gpt_oss"]), CPU)
    original = attention.Variant
    monkeypatch.setattr(attention, "Variant", lambda scaling, window, cap, sinks: original(scaling, window, cap, None))
    with pytest.raises(GpuWorkerError, match=r"\(gpt_oss\) .* differ from those of transformers' eager attention"):
        check_model(policy, tmp_path)


def test_log_probabilities_at_position_4096_equal_those_of_transformers_and_buffers_stay_float32(tmp_path):
    folder = make(tmp_path, "llama", {"max_position_embeddings": 4096, "head_dim": 64}, torch.bfloat16)
    policy = Policy(folder, CPU)
    assert {b.dtype for b in policy.model.buffers()} == {torch.float32}
    ids = np.random.default_rng(0).integers(0, 64, 4096)
    (pack,) = make_packs([chain(0, ids, np.arange(4096) > 2048, np.zeros(4096, np.float32), 1.0)], 4096)
    with policy.in_float32():
        found = token_logprobs(policy.infer(pack), policy.head, pack)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0, 2048:-1]
    expected = logits.log_softmax(-1).gather(1, torch.from_numpy(ids[2049:])[:, None])[:, 0]
    assert (found - expected).abs().mean() <= 1e-4
