"""Tests the publication of LoRA adapters to a real vLLM, with calls under way."""

import asyncio
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from conftest import Run
from real_engine import previous, publish, vllm
from shallow_model import cut

from .checkpoint import load_state
from .device import tune_process
from .engine import http_client
from .group.placement import Placement
from .group.world import World
from .head import token_logprobs
from .load_base import load_base
from .manifest import read_manifest
from .pack import chain, make_packs
from .progress import Progress
from .publish_real_test import MODEL, rows
from .train_step import Trainer
from .vllm_engine import VllmEngine

pytestmark = pytest.mark.real
LORA = {"lora_rank": 8, "lora_alpha": 32.0, "target_modules": "all-linear"}
PROMPT = [1, 4093, 198, 2683, 354]


async def stream(url, model, length, times):
    """Samples a reply, and notes when each token came. Returns its ids and log-probabilities."""
    body = {"model": model, "prompt": PROMPT, "max_tokens": length, "ignore_eos": True, "temperature": 1.0}
    body |= {"stream": True, "return_token_ids": True, "logprobs": 0, "seed": 3}
    ids, logprobs = [], []
    async with http_client(url) as http, http.stream("POST", "/v1/completions", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                ids += choice["token_ids"]
                logprobs += choice["logprobs"]["token_logprobs"] if choice["logprobs"] else []
                times.append(time.perf_counter())
    return ids, logprobs


def trainers_logprobs(folder, reply):
    """Returns what a version's weights give the tokens of a reply."""
    state = load_state(Path(folder), read_manifest(Path(folder)), Placement(torch.device("cpu"), World()), lambda: None)
    ids = np.array(PROMPT + reply)
    trained = np.arange(len(ids)) >= len(PROMPT)
    (pack,) = make_packs([chain(0, ids, trained, np.zeros(len(ids), np.float32), 1.0)], len(ids))
    with state.policy.in_float32(rounded=True):
        return token_logprobs(state.policy.infer(pack), state.policy.head, pack).numpy()


def longest_gap(times):
    return max(after - before for before, after in pairwise(times))


async def test_calls_under_way_keep_their_adapter_while_vllm_loads_the_next_one_and_a_lost_adapter_is_caught(tmp_path):
    tune_process(None)
    model = tmp_path / "model"
    cut(MODEL, model, 4)
    trainer, run = Trainer(torch.device("cpu"), 2048), Run(tmp_path / "home", model)
    given = {"run_id": "run", "model": str(model), "home": str(run.home), "seed": 0} | LORA
    made = [load_base(trainer, given, Progress())]
    batch = list(rows(AutoTokenizer.from_pretrained(MODEL)))
    for version in (1, 2):
        request = run.request(made[-1]["checkpoint"], batch, version, optim={"lr": 5e-3}, keep_checkpoints=4, **LORA)
        made.append(trainer.train_step(request, Progress()))

    small = ["--enable-lora", "--max-loras", "3", "--max-lora-rank", "8"]
    with vllm(model, tmp_path, "lora", more=small) as url:
        first = await publish(url, 0, made[0])
        assert first["ok"], first["error"]
        tolerance = first["canary_difference"]

        def after(version):
            """Returns what a publication is told of the version before."""
            given = previous(version, made[version])
            return {"canary_tolerance": tolerance, "previous": given, "keep": [f"run@{version}"]}

        one = await publish(url, 1, made[1], **after(0))
        assert one["ok"], one["error"]
        quiet, times = [], []
        await stream(url, "run@1", 200, quiet)
        older = asyncio.create_task(stream(url, "run@1", 900, times))
        while len(times) < 20:
            await asyncio.sleep(0.01)
        begun = time.perf_counter()
        two = await publish(url, 2, made[2], **after(1))
        assert two["ok"], two["error"]
        published = time.perf_counter()
        newer = await stream(url, "run@2", 40, [])
        assert not older.done(), "the older reply ended before the newer one was under way"
        replies = {1: await older, 2: newer}
        during = [at for at in times if begun <= at <= published]
        canaries = [tolerance, one["canary_difference"], two["canary_difference"]]
        print(f"canary differences {canaries}; publication {two['seconds']} s")
        print(
            f"longest gap between tokens: {longest_gap(quiet):.3f} s alone, {longest_gap(during):.3f} s while loading"
        )
        assert len(during) > 2, "no token was sampled during the publication"
        for version, (ids, logprobs) in replies.items():
            distance = {
                each: float(np.abs(trainers_logprobs(made[each]["checkpoint"], ids) - logprobs).mean())
                for each in (0, 1, 2)
            }
            print(f"reply of run@{version}: distance from each version {distance}")
            own = distance.pop(version)
            assert own < 0.1 and 3 * own < min(distance.values())
        async with VllmEngine(url) as engine:
            assert set(await engine.adapters()) == {"run@1", "run@2"}
            await engine.unload_adapter("run@2")
            with pytest.raises(Exception, match="does not exist"):
                await engine.prompt_logprobs(PROMPT, "run@2", adapter="run@2")
        again = await publish(url, 2, made[2], **after(1))
        assert again["ok"] and again["checksum"] == two["checksum"]
