"""Tests that a number that is not finite never reaches the weights: the step is skipped, or the run is blocked."""

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from conftest import two_groups
from faults import NAN, inject

from .device import is_out_of_memory, out_of_memory
from .errors import GpuWorkerError
from .manifest import read_manifest
from .progress import Progress
from .train_step import Trainer
from .train_step_test import fresh


def rows_with(where):
    rows = two_groups()
    if where == "reward":
        rows[1]["rewards"] = [("reward", NAN)]
    if where == "advantage":
        rows[1]["rewards"] = [("reward", 1e300)]
    if where == "rollout log-probability":
        rows[2]["logprobs"][-1] = NAN
    return rows


PLACES = {
    "reward": "trial t0-1 has a reward that is not finite",
    "advantage": "reward",
    "rollout log-probability": "trial t0-2 has a rollout log-probability that is not finite",
    "loss": "the loss is nan",
    "gradient": "the norm of the gradient is inf",
    "weight": "a weight is nan",
    "canary": "a log-probability of the canary is not finite",
}


@pytest.mark.parametrize(("where", "reason"), PLACES.items())
def test_a_train_step_with_a_number_that_is_not_finite_changes_no_weight_and_says_why(make_run, where, reason):
    run, trainer = make_run(), fresh()
    parent = run.base(trainer)
    with pytest.MonkeyPatch.context() as patch:
        inject(patch, where)
        made = trainer.train_step(run.request(parent["checkpoint"], rows_with(where)), Progress())
    assert reason in made["skipped"]
    assert made["metrics"]["actor/updates"] == 0 and made["metrics"]["actor/skipped"] == 1
    assert made["canary"] == parent["canary"]
    json.dumps(made, allow_nan=False)
    assert "NaN" not in (Path(made["checkpoint"]) / "manifest.json").read_text()
    before, after = (AutoModelForCausalLM.from_pretrained(each["checkpoint"]).state_dict() for each in (parent, made))
    assert all(before[name].equal(after[name]) for name in before)


def weights_of(made):
    return read_manifest(Path(made["checkpoint"])).weights_sha256


@pytest.mark.parametrize("where", ["reward", "weight"])
def test_the_train_step_after_a_skipped_step_trains_as_if_the_skipped_step_had_not_happened(make_run, where):
    run, trainer = make_run(), fresh()
    base = run.base(trainer)
    parent = trainer.train_step(run.request(base["checkpoint"], two_groups()), Progress())
    with pytest.MonkeyPatch.context() as patch:
        inject(patch, where)
        made = trainer.train_step(run.request(parent["checkpoint"], rows_with(where), 2), Progress())
    request = run.request(made["checkpoint"], two_groups()[1:], 3, keep_checkpoints=3)
    after = trainer.train_step(request, Progress())
    weights = weights_of(after)
    plain = fresh().train_step(request | {"parent_checkpoint": parent["checkpoint"]}, Progress())
    assert after["skipped"] is None and after["metrics"]["actor/updates"] == 1
    assert weights_of(plain) == weights


def test_a_train_step_after_max_skipped_steps_that_would_be_skipped_too_fails_and_leaves_no_checkpoint(
    make_run, trainer
):
    run = make_run()
    parent = run.base(trainer)["checkpoint"]
    for version in (1, 2):
        parent = trainer.train_step(run.request(parent, rows_with("reward"), version), Progress())["checkpoint"]
    trainer.settle()
    before = sorted((run.home / "checkpoints").iterdir())
    with pytest.raises(
        GpuWorkerError, match=r"trial t0-1 has a reward .* neither did the 2 before it.* resume"
    ) as caught:
        trainer.train_step(run.request(parent, rows_with("reward")[1:], 3), Progress())
    assert (caught.value.kind, caught.value.retryable) == ("StepsSkipped", False)
    assert sorted((run.home / "checkpoints").iterdir()) == before
    good = trainer.train_step(run.request(parent, two_groups(), 3), Progress())
    assert read_manifest(Path(good["checkpoint"])).skipped_in_a_row == 0


def test_with_max_skipped_steps_0_the_first_train_step_with_a_number_that_is_not_finite_fails(make_run, trainer):
    run = make_run()
    request = run.request(run.base(trainer)["checkpoint"], rows_with("reward"), max_skipped_steps=0)
    with pytest.raises(GpuWorkerError, match="made no update because trial t0-1"):
        trainer.train_step(request, Progress())


def test_rewards_of_1e39_train_like_rewards_of_1_when_their_deviation_divides_them(make_run):
    norms = []
    for name, scale in (("a", 1.0), ("b", 1e39)):
        run, trainer = make_run(name), fresh()
        rows = [r | {"rewards": [("reward", scale * r["rewards"][0][1])]} for r in two_groups()]
        made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], rows), Progress())
        norms.append(made["metrics"]["actor/grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


def test_a_train_step_with_rewards_of_1e39_that_no_deviation_divides_is_skipped(make_run, trainer):
    run = make_run()
    rows = [r | {"rewards": [("reward", 1e39 * r["rewards"][0][1])]} for r in two_groups()]
    request = run.request(run.base(trainer)["checkpoint"], rows, norm_adv_by_std_in_grpo=False)
    made = trainer.train_step(request, Progress())
    assert "too large" in made["skipped"]
    assert all(map(math.isfinite, made["metrics"].values()))


def test_a_base_model_with_a_weight_that_is_not_finite_is_refused(make_run, tiny_model, tmp_path, trainer):
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] = NAN
    model.save_pretrained(tmp_path / "damaged")
    run = make_run()
    run.model = tmp_path / "damaged"
    with pytest.raises(GpuWorkerError, match="log-probabilities are not finite: its weights are damaged") as caught:
        run.base(trainer)
    assert caught.value.kind == "BadModel"


def test_a_trainer_out_of_memory_has_an_error_that_says_which_setting_to_lower():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value) and is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    error = out_of_memory(caught.value, 2048)
    assert (error.kind, error.retryable) == ("OutOfMemory", False)
    assert "`pack_tokens` below 2048" in str(error)


def test_a_trainer_that_dropped_its_weights_as_after_out_of_memory_can_train_again(make_run):
    run, trainer = make_run(), Trainer(torch.device("cpu"), 64)
    request = run.request(run.base(trainer)["checkpoint"], two_groups())
    trainer.forget()
    assert trainer.train_step(request, Progress())["metrics"]["actor/updates"] == 1
