"""Tests an engine with our executor for CPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from real_engine import vllm
from shallow_model import cut

from .vllm_engine import VllmEngine

pytestmark = [pytest.mark.real, pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA's generators have offsets")]
MODEL = Path(__file__).parents[2] / ".trialgate" / "models" / "SmolLM2-135M-Instruct"


async def test_vllm_gives_the_same_reply_to_a_seed_with_a_prompt_computed_in_parts_and_with_a_cached_one(
    tmp_path: Path,
) -> None:
    cut(MODEL, tmp_path / "model", 2)
    params = {"max_tokens": 8, "ignore_eos": True, "temperature": 1.0, "seed": 7}
    body = {"model": "policy", "token_ids": list(range(100, 400)), "sampling_params": params}
    # The second time most of the prompt is in the cache, and computed in one part.
    in_parts = ["--max-num-batched-tokens", "64"]
    with vllm(tmp_path / "model", tmp_path, "engine", more=in_parts) as url:
        async with VllmEngine(url) as engine:
            replies = [(await engine._call("POST", "/inference/v1/generate", json=body)).json() for _ in range(2)]
    first, second = (reply["choices"][0]["token_ids"] for reply in replies)
    assert len(first) == 8
    assert first == second
