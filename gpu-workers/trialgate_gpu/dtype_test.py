"""The trainer computes in the dtype that the supervisor says, with weights that have the values of bfloat16."""

from __future__ import annotations

import pytest
import torch

from conftest import two_groups

from .device import DTYPE, computes_in_bfloat16
from .errors import GpuWorkerError
from .policy import Policy
from .progress import Progress
from .train_step import Trainer

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_trainer_computes_in_the_dtype_that_the_supervisor_says_and_its_metrics_tell(
    make_run, tiny_model, monkeypatch, dtype
):
    monkeypatch.setenv(DTYPE, dtype)
    run, trainer = make_run(), Trainer(CPU, 64)
    base = run.base(trainer)["checkpoint"]
    policy = Policy(tiny_model, CPU)
    assert {each.dtype for each in policy.model.parameters()} == {getattr(torch, dtype)}
    assert torch.equal(policy.running.to(torch.bfloat16), policy.compute)
    made = trainer.train_step(run.request(base, two_groups()), Progress())
    assert made["metrics"]["perf/compute_bits"] == {"bfloat16": 16, "float32": 32}[dtype]


def test_a_step_is_computed_again_in_another_dtype_as_far_as_rounding_allows(make_run, monkeypatch):
    run, steps = make_run(), {"save_optimizer_every": 3, "optim": {"lr": 1e-4}}
    monkeypatch.setenv(DTYPE, "float32")
    first = Trainer(CPU, 64)
    one = first.train_step(run.request(run.base(first)["checkpoint"], two_groups(), **steps), Progress())
    made_by = first.made_by
    monkeypatch.setenv(DTYPE, "bfloat16")
    second = Trainer(CPU, 64)
    assert second.made_by != made_by
    made = second.train_step(run.request(one["checkpoint"], two_groups(), 2, **steps), Progress())
    assert made["metrics"]["timing_s/replay"] > 0


def test_a_trainer_that_is_told_no_dtype_asks_the_processor_and_an_unknown_one_is_refused(monkeypatch):
    found = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    for value in ("", "auto"):
        monkeypatch.setenv(DTYPE, value)
        assert computes_in_bfloat16(CPU) == found
    monkeypatch.setenv(DTYPE, "float8")
    with pytest.raises(GpuWorkerError, match="TRIALGATE_DTYPE is 'float8': expected auto, bfloat16 or float32"):
        computes_in_bfloat16(CPU)
