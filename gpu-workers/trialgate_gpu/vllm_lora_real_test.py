"""Tests on vLLM's own classes what the extension repairs of LoRA on a CPU. No engine is started."""

import pytest
import torch

pytestmark = pytest.mark.real
SLOTS, RANK, WIDTH = 2, 3, 4


@pytest.fixture
def wrapper():
    """Returns a wrapper for a batch of two base tokens, two of the adapter in slot 0 and one of that in slot 1."""
    from vllm.lora.layers import LoRAMapping

    # Importing the extension repairs the class.
    from .vllm_extension import PunicaWrapperCPU

    made = PunicaWrapperCPU(16, 4, torch.device("cpu"))
    mapping = LoRAMapping((0, 0, 1, 1, 2), (0, 1, 2), is_prefill=True)
    made.update_metadata(mapping, [1, 2], SLOTS, 100)
    return made


def test_base_tokens_in_a_batch_with_adapters_get_no_part_of_one(wrapper):
    torch.manual_seed(0)
    x, a, b = torch.randn(5, WIDTH), torch.randn(SLOTS, 1, RANK, WIDTH), torch.randn(SLOTS, 1, WIDTH, RANK)
    y = torch.zeros(5, WIDTH)
    wrapper.add_lora_linear(y, x, (a,), (b,), 1.0, (WIDTH,))
    slots = [None, None, 0, 0, 1]
    expected = [torch.zeros(WIDTH) if s is None else b[s, 0] @ (a[s, 0] @ row) for s, row in zip(slots, x, strict=True)]
    torch.testing.assert_close(y, torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_the_logits_of_a_prompt_beside_sampled_rows_are_those_of_the_head_alone(wrapper):
    logits = torch.ones(7, WIDTH)
    a, b = torch.ones(SLOTS, 1, RANK, WIDTH), torch.ones(SLOTS, 1, WIDTH, RANK)
    wrapper.add_lora_logits(logits, torch.randn(7, WIDTH), a, b, 1.0)
    assert torch.equal(logits, torch.ones(7, WIDTH))
    wrapper.add_lora_logits(logits[:3], torch.ones(3, WIDTH), a, b, 1.0)
    assert logits[1:3].ne(1).all()
