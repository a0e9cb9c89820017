"""Measures on a real vLLM how long a stream waits between two tokens while LoRA adapters are loaded and unloaded.

    PYTHONPATH=gpu-workers .trialgate/venv/bin/python bench/adapter_gap.py

One stream samples with an adapter that stays. In turns nothing else happens, and another adapter is loaded and unloaded
again and again, as publications do. The canary passes of a publication are not part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch

from real_engine import vllm
from shallow_model import cut
from trialgate_gpu.device import tune_process
from trialgate_gpu.engine import http_client
from trialgate_gpu.load_base import load_base
from trialgate_gpu.progress import Progress
from trialgate_gpu.train_step import Trainer
from trialgate_gpu.vllm_engine import VllmEngine

ROOT = Path(__file__).parents[1]
AIM = 0.050
LORA = {"lora_rank": 8, "lora_alpha": 32.0, "target_modules": "all-linear"}


async def stream(url: str, tokens: int, started: asyncio.Event) -> list[float]:
    """Samples a reply with the adapter `stays`. Returns when each token came."""
    body = {"model": "stays", "prompt": [1, 4093, 198, 2683, 354], "max_tokens": tokens, "ignore_eos": True}
    times = []
    async with http_client(url) as http, http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                times.append(time.perf_counter())
                if len(times) == 5:
                    started.set()
    return times


async def measure(url: str, folder: str, tokens: int, *, loads: bool) -> tuple[float, float, list[float]]:
    """Returns the longest and the median gap of a stream, and the seconds of each load."""
    started, seconds = asyncio.Event(), []
    reply = asyncio.create_task(stream(url, tokens, started))
    await started.wait()
    async with VllmEngine(url) as engine:
        while loads and not reply.done():
            begun = time.perf_counter()
            await engine.load_adapter("other", folder)
            seconds.append(time.perf_counter() - begun)
            await engine.unload_adapter("other")
            await asyncio.sleep(0.2)
    # The first tokens come while the prompt is computed.
    times = (await reply)[5:]
    gaps = [after - before for before, after in pairwise(times)]
    return max(gaps), statistics.median(gaps), seconds


def row(name: str, values: list[float]) -> str:
    low, middle, high = (1000 * each for each in (min(values), statistics.median(values), max(values)))
    return f"{name:<52} {middle:8.1f} ms ({low:.1f}-{high:.1f}, {len(values)} times)"


async def run(url: str, folders: list[str], arguments: argparse.Namespace) -> list[str]:
    found: dict[bool, list[tuple[float, float, list[float]]]] = {False: [], True: []}
    async with VllmEngine(url) as engine:
        await engine.load_adapter("stays", folders[0])
    for number in range(arguments.repeats + 1):
        for loads in (False, True):
            measured = await measure(url, folders[1], arguments.tokens, loads=loads)
            if number > 0:
                found[loads].append(measured)
    seconds = [each for _, _, of_stream in found[True] for each in of_stream]
    return [
        row("longest gap between tokens, nothing else", [longest for longest, _, _ in found[False]]),
        row("longest gap, adapters loaded and unloaded", [longest for longest, _, _ in found[True]])
        + f"  aim: less than {1000 * AIM:.0f}",
        row("median gap, nothing else", [middle for _, middle, _ in found[False]]),
        row("median gap, adapters loaded and unloaded", [middle for _, middle, _ in found[True]]),
        row("a load", seconds),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300, help="tokens of a stream")
    parser.add_argument("--layers", type=int, help="keep so many of the model's layers (default: all)")
    parser.add_argument("--model", type=Path, default=ROOT / ".trialgate" / "models" / "SmolLM2-135M-Instruct")
    parser.add_argument("--out", type=Path, help="file for the table (default: only printed)")
    arguments = parser.parse_args()
    tune_process(None)
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), arguments.model
        if arguments.layers:
            model = folder / "model"
            cut(arguments.model, model, arguments.layers)
        trainer = Trainer(torch.device("cpu"), 2048)
        folders = []
        for seed in (0, 1):
            given = {"run_id": f"run-{seed}", "model": str(model), "home": str(folder / "home"), "seed": seed}
            folders.append(load_base(trainer, given | LORA, Progress())["checkpoint"])
        trainer.forget()
        more = ["--enable-lora", "--max-loras", "3", "--max-lora-rank", "8"]
        with vllm(model, folder, "lora", more=more) as url:
            lines = asyncio.run(run(url, folders, arguments))
    layers = json.loads((arguments.model / "config.json").read_text())["num_hidden_layers"]
    about = f"{arguments.model.name}, {arguments.layers or layers} layers, {len(os.sched_getaffinity(0))} cores"
    given = f"--repeats {arguments.repeats} --tokens {arguments.tokens}"
    given += f" --layers {arguments.layers}" if arguments.layers else ""
    text = "\n".join([f"$ python bench/adapter_gap.py {given}", f"{time.strftime('%Y-%m-%d')}, {about}", "", *lines])
    print(text)
    if arguments.out:
        arguments.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
