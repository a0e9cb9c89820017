"""Tests publication to a real vLLM with a float32 head, against an engine started on the same checkpoint."""

import asyncio
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from conftest import Run, row
from real_engine import previous, publish, vllm
from shallow_model import cut

from .device import tune_process
from .errors import GpuWorkerError
from .load_base import load_base
from .progress import Progress
from .train_step import Trainer
from .vllm_engine import VllmEngine

pytestmark = pytest.mark.real
MODEL = Path(__file__).parents[2] / ".trialgate" / "models" / "SmolLM2-135M-Instruct"
EXACT_HEAD = ["--hf-overrides", '{"head_dtype": "float32"}']
REPLIES = ["def add(a, b):\n    return a + b\n", "I can not do that, sorry.", "return a - b", "```python\nadd\n```"]


def rows(tokenizer):
    for group, task in enumerate(("Add two numbers.", "Reverse a string.")):
        prompt = tokenizer(f"<|im_start|>user\n{task}<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
        for trial_index, reply in enumerate(REPLIES):
            ids = tokenizer(reply)["input_ids"]
            yield row(prompt, ids, trial_index / 3, f"g{group}", f"t{group}-{trial_index}")


async def logprobs(url, sequences, weight_version):
    async with VllmEngine(url) as engine:
        return [await engine.prompt_logprobs(ids, weight_version) for ids in sequences]


async def generation(url):
    """Sends a long request that is in flight while weights change. Returns its choice, with weight versions."""
    async with VllmEngine(url) as engine:
        params = {"max_tokens": 600, "ignore_eos": True, "temperature": 1.0}
        body = {"model": "policy", "token_ids": [1, 2, 3, 4], "sampling_params": params}
        answer = await engine._call("POST", "/inference/v1/generate", json=body)
        return answer.json()["choices"][0]


async def test_vllm_gives_the_same_log_probabilities_after_a_publication_as_when_started_on_those_weights(tmp_path):
    tune_process(None)
    model = tmp_path / "model"
    cut(MODEL, model, 4)
    trainer, run = Trainer(torch.device("cpu"), 2048), Run(tmp_path / "home", model)
    base = load_base(
        trainer, {"run_id": "run", "model": str(model), "home": str(run.home), "head_dtype": "float32"}, Progress()
    )
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    request = run.request(base["checkpoint"], list(rows(tokenizer)), optim={"lr": 3e-5}, head_dtype="float32")
    made = trainer.train_step(request, Progress())
    sequences = [tokenizer(text)["input_ids"] for text in (*REPLIES, "def reverse(s):\n    return s[::-1]\n" * 8)]

    with vllm(model, tmp_path, "warm", more=EXACT_HEAD) as url:
        with pytest.raises(GpuWorkerError, match="computes its output head as `head_dtype: float32`"):
            await publish(url, 0, base, head_dtype="model")
        first = await publish(url, 0, base, head_dtype="float32")
        assert first["ok"], first
        before = await logprobs(url, sequences, "run@0")
        tolerance = first["canary_difference"]
        given = {
            "canary_tolerance": tolerance,
            "previous": previous(0, base, checksums={url: first["checksum"]}),
            "head_dtype": "float32",
        }

        flight = asyncio.create_task(generation(url))
        await asyncio.sleep(0.3)
        second = await publish(url, 1, made, **given)
        assert second["ok"], second
        choice = await flight
        assert [span["version"] for span in choice["weight_versions"]][-1] == "run@1"
        after = await logprobs(url, sequences, "run@1")
        assert after != before

        again = await publish(url, 1, made, **given)
        assert again["ok"] and again["checksum"] == second["checksum"]

        async with VllmEngine(url) as engine:
            await engine.pause()
            await engine.set_weight_version("loading:run@2")
        started = time.monotonic()
        ended = await publish(url, 1, made, **given)
        assert ended["ok"] and ended["weight_version"] == "run@1" and time.monotonic() - started < 60
        print(f"publish: {second['seconds']} s, confirm: {again['seconds']} s, canary {tolerance} then {second}")

    with vllm(Path(made["checkpoint"]), tmp_path, "cold", more=EXACT_HEAD) as url:
        async with VllmEngine(url) as engine:
            assert await engine.weight_version() == "default"
            assert await engine.checksum() == second["checksum"]
        cold = await logprobs(url, sequences, "cold")
        flat = [pair for one, other in zip(after, cold, strict=True) for pair in zip(one, other, strict=True)]
        difference = max(abs(a - b) for a, b in flat)
        print(f"published against cold: {difference} over {len(flat)} tokens")
        assert difference < 1e-3
        restarted = await publish(url, 1, made, **given)
        assert restarted["ok"] and restarted["weight_version"] == "run@1"
