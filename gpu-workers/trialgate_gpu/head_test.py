"""Tests an output head in float32 from bfloat16 weights, as vLLM's with `head_dtype` float32, and its scale and cap."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from conftest import settings_with

from .errors import GpuWorkerError
from .head import Head, HeadGradient, backward_through_head, token_logprobs
from .logit_shape import LogitShape
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
    heads = (Head(head), Head(head, in_float32=True))
    rounded, exact = ((token_logprobs(hidden, each, pack) - expected).abs().mean() for each in heads)
    assert exact < 1e-5
    assert rounded > 1e-3


def test_with_head_dtype_float32_the_gradient_is_that_of_the_log_probabilities_without_rounding(made):
    hidden, head, pack = made
    _, *expected = in_float64(*made)
    total = HeadGradient(torch.zeros(VOCABULARY, WIDTH), torch.zeros(VOCABULARY))
    of_hidden, _ = backward_through_head(
        hidden, Head(head, in_float32=True), pack, lambda _, logprobs: -torch.ones_like(logprobs), total
    )
    for found, right in zip((of_hidden, total.weight), expected, strict=True):
        assert (found.double() - right).norm() < 0.01 * right.norm()


def test_a_train_step_with_head_dtype_float32_has_another_key_than_one_without():
    plain, exact = (settings_with(**changes).identity() for changes in ({}, {"head_dtype": "float32"}))
    assert plain != exact
    with pytest.raises(GpuWorkerError, match="head_dtype: 'float16' is not one of"):
        settings_with(head_dtype="float16")


@pytest.mark.parametrize("shape", [LogitShape(0.25), LogitShape(1.0, 2.0), LogitShape(0.5, 3.0)], ids=str)
@pytest.mark.parametrize("by_sequence", [False, True])
def test_the_gradient_and_entropy_of_a_head_that_scales_or_caps_its_logits_are_those_of_pytorch_autograd(
    shape, by_sequence
):
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    ids = draw.integers(0, VOCABULARY, NODES + 1)
    masks = [None] * len(ids)
    masks[5], masks[9] = (np.sort(np.unique([*draw.integers(0, VOCABULARY, 40), ids[i]])) for i in (5, 9))
    (pack,) = make_packs([chain(0, ids, np.arange(len(ids)) > 0, np.zeros(len(ids), np.float32), 0.7, masks)], 100)
    linear_head = torch.nn.Linear(WIDTH, VOCABULARY)
    linear_head.weight.data.normal_()
    hidden = torch.randn(NODES, WIDTH, requires_grad=True)

    logits = linear_head(hidden) * shape.scale
    if shape.cap is not None:
        logits = shape.cap * torch.tanh(logits / shape.cap)
    logits = logits / 0.7
    excluded = torch.zeros_like(logits, dtype=torch.bool)
    for token in (5, 9):
        excluded[token - 1] = True
        excluded[token - 1, masks[token]] = False
    logits = logits.masked_fill(excluded, -torch.inf)
    expected = logits.log_softmax(1)[range(NODES), pack.targets]
    slopes = torch.linspace(-1, 1, NODES)
    (expected * slopes).sum().backward()

    head = Head(linear_head, shape)
    total = HeadGradient(torch.zeros(VOCABULARY, WIDTH), torch.zeros(VOCABULARY))
    of_hidden, entropies = backward_through_head(
        hidden.detach(), head, pack, lambda tokens, _: slopes[tokens], total, by_sequence=by_sequence
    )
    torch.testing.assert_close(token_logprobs(hidden.detach(), head, pack), expected.detach())
    torch.testing.assert_close(of_hidden, hidden.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(total.weight, linear_head.weight.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(total.bias, linear_head.bias.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(entropies, torch.distributions.Categorical(logits=logits.detach()).entropy())


@pytest.mark.parametrize("value", [0.0, -2.0, float("nan"), float("inf"), "inv_sqrt_d_model", True])
def test_a_setting_that_logits_cannot_be_multiplied_with_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"`logit_scale` is .*not a number above 0"):
        LogitShape.of(SimpleNamespace(logit_scale=value, model_type="cohere"))
