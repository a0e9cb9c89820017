import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from conftest import TEACHER, row, settings_with, two_groups, write_batch

from .advantages_test import sample
from .batch import read_batch
from .errors import GpuWorkerError
from .prepare import prepare
from .progress import Progress
from .settings import Teacher
from .teacher import teacher_advantages


def teacher_with(coef=1.0, clamp=10.0):
    return Teacher(distillation_loss_coef=coef, loss_max_clamp=clamp)


def taught(teacher, rollout_logprobs, **settings):
    made = sample(0.0, tokens=len(rollout_logprobs))
    logprobs = np.array([0.0, *rollout_logprobs], np.float32)
    given = replace(made, rollout_logprobs=logprobs, teacher_logprobs=np.array([np.nan, *teacher], np.float32))
    return teacher_advantages(given, teacher_with(**settings)).tolist()


def test_a_teacher_rewards_a_token_by_the_clamped_log_ratio_of_its_probability_to_the_policys():
    assert taught([-1.0, -3.0, -9999.0], [-2.0, -2.5, -1.0]) == [1.0, -0.5, -10.0]
    assert taught([-1.0, -3.0], [-2.0, -2.5], coef=0.5, clamp=0.75) == [0.375, -0.25]


def test_a_token_without_a_teacher_log_probability_gets_no_reward_from_the_teacher():
    assert taught([np.nan, -1.0], [-2.0, -2.0]) == [0.0, 1.0]
    assert teacher_advantages(sample(1.0), teacher_with()).tolist() == [0.0, 0.0]


def test_a_teachers_rewards_add_to_the_advantages_and_the_metrics_have_its_kl(tmp_path):
    rows = [r | {"teacher_logprobs": [None if m == 0 else -3.0 for m in r["loss_mask"]]} for r in two_groups()]
    samples = read_batch(*write_batch(tmp_path, rows), 0)
    plain, taught = (
        prepare(samples, settings_with(), 0),
        prepare(samples, settings_with(teacher=TEACHER | {"distillation_loss_coef": 2}), 0),
    )
    for a, b in zip(plain.chains, taught.chains, strict=True):
        np.testing.assert_allclose(b.advantages, a.advantages + 2.0)
    assert taught.metrics["distillation/kl"] == -1 and taught.metrics["distillation/clamped_fraction"] == 0
    assert taught.metrics["distillation/tokens"] == taught.metrics["tokens/trained"]
    assert not any(name.startswith("distillation") for name in plain.metrics)


def test_a_batch_whose_teacher_log_probabilities_are_for_other_tokens_is_refused(tmp_path):
    path, sha256 = write_batch(tmp_path, [row([1], [2], 1.0, "g", "t", teacher_logprobs=[None])])
    with pytest.raises(GpuWorkerError, match="teacher's log-probabilities for other tokens"):
        read_batch(path, sha256, 0)


def test_a_train_step_has_the_teachers_settings_in_its_key_only_when_it_has_a_teacher():
    assert "distillation_loss_coef" not in settings_with().identity()
    assert settings_with(teacher=TEACHER).identity()["loss_max_clamp"] == 10


def test_a_train_step_brings_the_policy_nearer_to_its_teacher_without_any_verifiers_reward(make_run, trainer):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    prompt = [5, 6, 7]
    # The teacher is certain of the even ids.
    teacher = torch.tensor([math.log(1 / 32 if i % 2 == 0 else 1e-3) for i in range(64)]).log_softmax(0)

    def policy(folder):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return model(torch.tensor([prompt])).logits[0, -1].log_softmax(0).detach()

    def distance(folder):
        found = policy(folder)
        return float((found.exp() * (found - teacher)).sum())

    before = policy(base)
    torch.manual_seed(0)
    rows = [
        row(prompt, [token], 0.5, f"g{i // 8}", f"t{i}")
        | {"logprobs": [0, 0, 0, float(before[token])], "teacher_logprobs": [None] * 3 + [float(teacher[token])]}
        for i, token in enumerate(torch.multinomial(before.exp(), 64, replacement=True).tolist())
    ]
    untaught = trainer.train_step(run.request(base, rows), Progress())
    assert untaught["metrics"]["actor/updates"] == 0
    made = trainer.train_step(run.request(base, rows, teacher=TEACHER), Progress())
    assert distance(made["checkpoint"]) < distance(base) - 0.1
    assert made["metrics"]["distillation/kl"] == pytest.approx(distance(base), abs=0.5)
