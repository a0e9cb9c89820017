"""Compares losses and gradients with TRL 1.16's own, recorded by `bench/trl_losses.py`."""

import json
from pathlib import Path

import pytest
import torch

from conftest import settings_with

from ..advantages_test import sample
from ..rollout_correction import correction
from ..token_shares import token_shares
from . import OBJECTIVES
from .objective import Tokens

RECORDED = json.loads((Path(__file__).parent / "trl-losses.json").read_text())
INPUTS = {name: torch.tensor(values) for name, values in RECORDED["inputs"].items()}
# TRL's loss types, expressed as settings of this trainer.
SETTINGS = {
    "grpo": {"objective": "grpo", "loss_agg_mode": "seq-mean-token-mean", "clip_ratio_high": 0.28},
    "dapo": {"objective": "grpo", "loss_agg_mode": "token-mean", "clip_ratio_high": 0.28},
    "dr_grpo": {
        "objective": "grpo",
        "loss_agg_mode": "seq-mean-token-sum-norm",
        "loss_scale_factor": RECORDED["max_completion_length"],
        "clip_ratio_high": 0.28,
    },
    "gspo": {"objective": "gspo", "clip_ratio_low": 0.2, "clip_ratio_high": 0.28},
    "cispo": {"objective": "cispo", "clip_ratio_high": 0.7},
}


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda c: f"{c['loss_type']}-{c['delta']}-{c['correction']}")
def test_the_objectives_losses_and_gradients_equal_those_recorded_from_trl(case):
    settings = settings_with(
        **SETTINGS[case["loss_type"]], rollout_is=case["correction"], clip_ratio_c=case["delta"] or 1e9
    )
    mask = INPUTS["mask"].bool()
    counts = mask.sum(1).tolist()
    sequence = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    samples = [sample(0.0, trial=str(row), tokens=count) for row, count in enumerate(counts)]
    shares = token_shares(samples, settings.loss_agg_mode, settings.loss_scale_factor)
    tokens = Tokens(INPUTS["advantages"][sequence], INPUTS["old_logprobs"][mask], sequence)
    weight = torch.from_numpy(shares).float()[sequence] * correction(tokens, INPUTS["rollout_logprobs"][mask], settings)
    logprob = INPUTS["logprobs"][mask].requires_grad_()

    loss = (OBJECTIVES[settings.objective].losses(logprob, tokens, settings).loss * weight).sum()
    loss.backward()

    assert loss.item() == pytest.approx(case["loss"], rel=5e-6)
    expected = torch.tensor(case["gradient"])[mask]
    difference = torch.linalg.vector_norm(logprob.grad - expected) / torch.linalg.vector_norm(expected)
    assert difference <= 2e-6
