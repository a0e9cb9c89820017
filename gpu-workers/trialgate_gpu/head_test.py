"""Tests an output head that computes in float32 from bfloat16 weights, as vLLM does with `head_dtype` float32."""

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from conftest import settings_with

from .errors import GpuWorkerError
from .head import Float32Head, HeadGradient, backward_through_head, token_logprobs
from .pack import chain, make_packs

NODES, WIDTH, VOCABULARY = 24, 64, 300


@pytest.fixture
def made():
    """Returns (hidden states [nodes, width], head, pack) in bfloat16, with logits as large as a real model's."""
    torch.manual_seed(0)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, NODES + 1)
    trained = np.arange(len(ids)) > 0
    (pack,) = make_packs([chain(0, ids, trained, np.zeros(len(ids), np.float32), 1.0)], len(ids))
    head = torch.nn.Linear(WIDTH, VOCABULARY).to(torch.bfloat16)
    head.weight.data.normal_()
    return torch.randn(NODES, WIDTH).to(torch.bfloat16), head, pack


def in_float64(hidden, head, pack):
    """Returns (log-probabilities, gradients of their negative sum by hidden states and weight) without rounding."""
    inputs, weight, bias = (each.detach().double().requires_grad_() for each in (hidden, head.weight, head.bias))
    logprobs = linear(inputs, weight, bias).log_softmax(1)[range(NODES), pack.targets]
    (-logprobs.sum()).backward()
    return logprobs.detach(), inputs.grad, weight.grad


def test_with_head_dtype_float32_log_probabilities_are_those_of_the_bfloat16_weights_without_rounding(made):
    hidden, head, pack = made
    expected, *_ = in_float64(*made)
    heads = (head, Float32Head(head))
    rounded, exact = ((token_logprobs(hidden, each, pack) - expected).abs().mean() for each in heads)
    assert exact < 1e-5
    assert rounded > 1e-3


def test_with_head_dtype_float32_the_gradient_is_that_of_the_log_probabilities_without_rounding(made):
    hidden, head, pack = made
    _, *expected = in_float64(*made)
    total = HeadGradient(torch.zeros(VOCABULARY, WIDTH), torch.zeros(VOCABULARY))
    of_hidden, _ = backward_through_head(
        hidden, Float32Head(head), pack, lambda _, logprobs: -torch.ones_like(logprobs), total
    )
    for found, right in zip((of_hidden, total.weight), expected, strict=True):
        assert (found.double() - right).norm() < 0.01 * right.norm()


def test_a_train_step_with_head_dtype_float32_has_another_key_than_one_without():
    plain, exact = (settings_with(**changes).identity() for changes in ({}, {"head_dtype": "float32"}))
    assert plain != exact
    with pytest.raises(GpuWorkerError, match="head_dtype: 'float16' is not one of"):
        settings_with(head_dtype="float16")
