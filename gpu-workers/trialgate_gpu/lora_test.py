import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader
from transformers import AutoModelForCausalLM

from conftest import LORA, Run, settings_with, two_groups, write_batch

from .batch import read_batch
from .checkpoint import TrainerState
from .device import computes_in_bfloat16
from .errors import Cancelled, GpuWorkerError
from .fork_test import forked
from .load_base import load_base
from .lora import Lora
from .manifest import ADAPTER, BASE, read_manifest
from .merge import merge
from .optimize import mini_batches, optimize
from .optimizer import FlatAdamW
from .pack import make_packs, untrained_pack
from .policy import Policy, layers_of
from .prepare import prepare
from .progress import Progress
from .reference_test import PACK_TOKENS, SEED, plain_advantages, plain_logprobs, plain_loss, rows
from .settings import FULL_LR, LORA_LR
from .train_step import Trainer

# `seed` is a setting of every run.
SETTINGS = {key: value for key, value in LORA.items() if key != "seed"}


def fresh():
    return Trainer(torch.device("cpu"), 64)


def base_of(run: Run, trainer: Trainer, **changes):
    return load_base(
        trainer, {"run_id": "run", "model": str(run.model), "home": str(run.home)} | LORA | changes, Progress()
    )


def step(run: Run, trainer: Trainer, parent, version=1, **changes):
    request = run.request(parent["checkpoint"], two_groups(), version, **(SETTINGS | {"optim": {"lr": 1e-2}} | changes))
    return trainer.train_step(request, Progress())


def tokens(length=60):
    return np.random.default_rng(0).integers(2, 60, length).tolist()


def logprobs_of(model):
    with torch.no_grad():
        return model(torch.tensor([tokens()])).logits[0].float().log_softmax(-1)


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj"], ["down_proj", "v_proj"]], ids=str)
@pytest.mark.parametrize("objective", ["grpo", "gspo"])
def test_the_gradient_of_every_update_of_an_adapter_equals_that_of_plain_peft_and_pytorch(
    tiny_model, tmp_path, monkeypatch, targets, objective
):
    clips = {"clip_ratio_low": 0.05, "clip_ratio_high": 0.08}
    settings = settings_with(objective=objective, optim={"lr": 3e-3}, ppo_mini_batch_size=3, **clips)
    policy = Policy(tiny_model, torch.device("cpu"), torch.float32, Lora(4, 8.0, targets, 0))
    config = LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
    plain = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32), config).eval()
    own = dict(plain.base_model.model.named_parameters())
    trained = [own[name] for name in policy.names]
    assert sum(p.requires_grad for p in own.values()) == len(trained)
    # Both B are 0 in the beginning, so that most gradients would be 0.
    torch.manual_seed(1)
    policy.master.copy_(0.1 * torch.randn_like(policy.master))
    policy.refresh()
    torch.nn.utils.vector_to_parameters(policy.master.clone(), trained)
    samples = []
    for sample in read_batch(*write_batch(tmp_path, rows()), 0):
        logprobs = np.zeros(len(sample.token_ids), np.float32)
        logprobs[sample.loss_mask] = plain_logprobs(plain, sample).detach()
        samples.append(replace(sample, rollout_logprobs=np.minimum(logprobs, 0)))

    updates_made, made = [], 0
    original = FlatAdamW.step

    def recorded_step(self, gradient, optim):
        updates_made.append((policy.master.clone(), gradient.clone()))
        return original(self, gradient, optim)

    monkeypatch.setattr(FlatAdamW, "step", recorded_step)
    prepared = prepare(samples, settings, 0)
    assert any(pack.prefix is not None for pack in make_packs(prepared.learned, PACK_TOKENS))
    state = TrainerState(policy, FlatAdamW(policy.master, policy.decayed()))
    optimize(state, prepared, settings, PACK_TOKENS, SEED, Progress())

    advantages = plain_advantages(samples, objective)
    starts = [plain_logprobs(plain, s).detach() for s in samples]
    for indices in mini_batches(prepared, settings, [settings.seed, SEED, 0]):
        weights, found = updates_made[made]
        torch.nn.utils.vector_to_parameters(weights, trained)
        plain.zero_grad()
        plain_loss(plain, samples, advantages, starts, indices, settings).backward()
        expected = torch.cat([p.grad.reshape(-1) for p in trained])
        assert torch.linalg.vector_norm(expected) > 0
        assert torch.linalg.vector_norm(found - expected) <= 1e-5 * torch.linalg.vector_norm(expected)
        made += 1
    assert made == len(updates_made) == 2


def test_version_0_of_a_lora_run_computes_what_the_base_model_computes_and_its_adapter_loads_in_peft(make_run, trainer):
    run = make_run()
    base, plain = base_of(run, trainer), Run(run.home / "plain", run.model).base(fresh())
    assert base["canary"] == plain["canary"]
    model = AutoModelForCausalLM.from_pretrained(run.model)
    before = logprobs_of(model)
    assert torch.equal(logprobs_of(PeftModel.from_pretrained(model, base["checkpoint"])), before)


def test_a_step_moves_only_the_adapter_and_its_checkpoint_holds_no_weights_of_the_base(make_run, trainer):
    run = make_run()
    base = base_of(run, trainer)
    kept = copy.deepcopy({k: v for k, v in trainer._state.policy.model.state_dict().items() if ".lora_" not in k})
    made = step(run, trainer, base)
    policy = trainer._state.policy
    assert all(torch.equal(value, kept[name]) for name, value in policy.model.state_dict().items() if name in kept)
    trainer.settle()
    folder = Path(made["checkpoint"])
    assert all(path.is_symlink() for path in (folder / BASE).iterdir())
    own = [path.name for path in folder.rglob("*.safetensors") if not path.is_symlink()]
    assert own == [ADAPTER]
    saved = FileSystemReader(folder / "trainer").read_metadata().state_dict_metadata
    assert {name.partition(".")[2] for name in saved} == set(policy.names)
    assert policy.master.numel() == sum(t.numel() for t in load_file(folder / ADAPTER).values())
    changed = load_file(folder / ADAPTER), load_file(Path(base["checkpoint"]) / ADAPTER)
    assert all(not torch.equal(changed[0][name], changed[1][name]) for name in changed[0] if "lora_B" in name)
    manifest = read_manifest(folder)
    assert (
        manifest.files[f"{BASE}/model.safetensors"]
        == read_manifest(Path(base["checkpoint"])).files[f"{BASE}/model.safetensors"]
    )


def test_a_lora_step_gives_the_same_bits_whether_its_parent_is_in_memory_or_read_from_disk(make_run):
    kept = fresh()
    made = []
    for name, second in (("a", kept), ("b", None)):
        run, first = make_run(name), second or fresh()
        one = step(run, first, base_of(run, first))
        made.append(step(run, second or fresh(), one, 2))
    assert made[0]["checkpoint_sha256"] == made[1]["checkpoint_sha256"]
    assert made[0]["canary"] == made[1]["canary"]


def test_the_state_of_a_lora_runs_version_0_stays_in_memory_for_the_first_step(make_run, trainer):
    run = make_run()
    base = base_of(run, trainer)
    loaded = trainer._state
    step(run, trainer, base)
    assert trainer._state is loaded


def test_runs_whose_adapters_differ_only_in_alpha_have_different_policies(make_run, trainer):
    one, other = make_run("one"), make_run("other")
    base = base_of(one, trainer)
    assert base_of(other, trainer, lora_alpha=16.0)["checkpoint_sha256"] != base["checkpoint_sha256"]
    made = step(one, trainer, base)
    assert trainer._state.policy.lora.alpha == 8.0
    alone = make_run("alone")
    expected = step(alone, first := fresh(), base_of(alone, first))
    assert made["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert made["canary"] == expected["canary"]


def test_in_float32_the_base_has_one_layer_at_a_time_in_float32_and_is_bfloat16_afterwards(tiny_model):
    policy = Policy(tiny_model, torch.device("cpu"), torch.bfloat16, Lora(4, 8.0, "all-linear", 0))
    layers = layers_of(policy.model)
    frozen = [[p for p in layer.parameters() if not p.requires_grad] for layer in layers]
    seen = []

    def look(*_):
        seen.append([{p.dtype for p in of_layer} for of_layer in frozen])

    for layer in layers:
        layer.mlp.register_forward_pre_hook(look)
    with policy.in_float32():
        check = policy.infer(untrained_pack(np.array(tokens())))
    assert check.dtype == torch.float32
    full, half = {torch.float32}, {torch.bfloat16 if computes_in_bfloat16(policy.device) else torch.float32}
    assert seen == [[full, half], [half, full]]
    assert {p.dtype for p in policy.model.parameters()} == half


def test_an_adapter_whose_version_0_was_not_finished_is_not_used_for_another_one_on_the_same_base(make_run, trainer):
    run = make_run()

    class CancelledAtCanary(Progress):
        def show(self, phase, **numbers):
            if phase == "canary":
                self.cancel()
            super().show(phase, **numbers)

    request = {"run_id": "run", "model": str(run.model), "home": str(run.home)} | LORA
    with pytest.raises(Cancelled):
        load_base(trainer, request, CancelledAtCanary())
    base_of(run, trainer, lora_alpha=16.0)
    assert trainer._state.policy.lora.alpha == 16.0


def test_the_merged_export_has_the_log_probabilities_of_the_adapter_and_the_base_models_tensors(
    make_run, trainer, tmp_path
):
    run = make_run()
    made = step(run, trainer, base_of(run, trainer))
    (merged := tmp_path / "merged").mkdir()
    merge(Path(made["checkpoint"]), merged)
    assert set(load_file(merged / "model.safetensors")) == set(load_file(run.model / "model.safetensors"))
    base = AutoModelForCausalLM.from_pretrained(run.model, dtype=torch.float32)
    before = logprobs_of(base)
    adapter = logprobs_of(PeftModel.from_pretrained(base, made["checkpoint"]))
    found = logprobs_of(AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32))
    moved = (adapter - before).abs().mean()
    # The merged weights are rounded to bfloat16.
    assert (found - adapter).abs().mean() < 0.05 * moved


def test_an_adapter_with_tensors_that_the_runs_settings_do_not_make_is_refused(make_run, trainer):
    run = make_run()
    made = step(run, trainer, base_of(run, trainer))
    file = Path(made["checkpoint"]) / ADAPTER
    others = Lora(rank=LORA["lora_rank"], alpha=LORA["lora_alpha"], target_modules=["q_proj", "v_proj"], seed=0)
    policy = Policy(file.parent / BASE, torch.device("cpu"), torch.float32, others)
    with pytest.raises(GpuWorkerError, match=r"differ in .* tensors, such as .*resume the run with the release"):
        policy.read_adapter(file)


def test_a_fork_of_an_adapter_goes_on_with_it_after_the_first_runs_checkpoints_are_gone(make_run, trainer):
    run = make_run()
    one = step(run, trainer, base := base_of(run, trainer))
    trainer.settle()
    folder = forked(one["checkpoint"], "other")
    for gone in (one, base):
        shutil.rmtree(gone["checkpoint"])
    request = {"run_id": "other", "model": str(folder), "home": str(run.home)} | LORA
    begun = load_base(fresh(), request | {"seed": 7}, Progress())
    assert (begun["checkpoint"], begun["canary"]) == (str(folder), one["canary"])
    assert step(run, fresh(), begun, seed=7)["metrics"]["actor/updates"] == 1
    with pytest.raises(GpuWorkerError, match=r"has lora_rank 4.* asks for no adapter: set what the version has"):
        load_base(fresh(), request | {"lora_rank": 0}, Progress())


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["nothing"], "'nothing', which the model does not have"),
        (["q_proj", "nothing"], "'nothing', which the model does not have"),
        (["lm_head"], "the output head"),
        (["embed_tokens"], "no linear layer"),
        (["input_layernorm"], "no linear layer"),
    ],
)
def test_target_modules_that_cannot_have_an_adapter_are_refused_and_the_error_names_those_that_can(
    make_run, trainer, targets, message
):
    with pytest.raises(GpuWorkerError, match=message) as caught:
        base_of(make_run(), trainer, target_modules=targets)
    assert "a llama has down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj." in str(caught.value)
    assert (caught.value.kind, caught.value.retryable) == ("BadSettings", False)


@pytest.mark.parametrize("changes", [{"lora_rank": 8}, {"lora_alpha": 4.0}, {"target_modules": ["q_proj"]}], ids=str)
def test_a_step_with_other_lora_settings_than_its_parents_is_refused(make_run, trainer, changes):
    run = make_run()
    base = base_of(run, trainer)
    with pytest.raises(GpuWorkerError, match="the version to start from has lora_rank 4, lora_alpha 8, target_modules"):
        step(run, trainer, base, **changes)


def test_the_local_trainer_refuses_a_version_whose_moments_only_a_server_has(make_run, trainer):
    run = make_run()
    base = base_of(run, trainer)
    file = Path(base["checkpoint"]) / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"trainer_server": {"weights": "tinker://w"}}))
    with pytest.raises(GpuWorkerError, match=r"was made by a trainer server.*set `trainer_server` again") as caught:
        step(run, trainer, base)
    assert not caught.value.retryable


def test_an_adapter_on_a_base_whose_files_changed_is_refused(make_run, tmp_path, trainer, tiny_model):
    run = make_run()
    run.model = Path(shutil.copytree(tiny_model, tmp_path / "copy"))
    made = step(run, trainer, base_of(run, trainer))
    file = run.model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(GpuWorkerError, match="does not have the sha256 of its manifest"):
        step(run, fresh(), made, 2)


def test_the_learning_rate_of_lora_is_ten_times_the_one_of_all_weights_unless_the_run_file_names_one(make_run):
    assert settings_with().optim.lr == FULL_LR
    assert settings_with(lora_rank=8).optim.lr == LORA_LR == pytest.approx(10 * FULL_LR)
    assert settings_with(lora_rank=8, optim={"lr": 1e-5}).optim.lr == 1e-5


def test_the_key_of_a_step_has_lora_settings_only_where_an_adapter_is_trained():
    assert "lora_rank" not in settings_with(lora_alpha=4.0).identity()
    assert settings_with(lora_rank=8).identity() != settings_with(lora_rank=8, lora_alpha=4.0).identity()


def test_peft_settings_of_a_checkpoint_name_the_base_the_rank_and_the_layers(make_run, trainer):
    run = make_run()
    folder = step(run, trainer, base_of(run, trainer))["checkpoint"]
    config = json.loads((Path(folder) / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (4, 8.0, "LORA")
    assert config["base_model_name_or_path"] == str(run.model)
    assert sorted(config["target_modules"]) == [
        "down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"
    ]  # fmt: skip
