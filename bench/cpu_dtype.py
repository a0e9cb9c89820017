"""Compares bfloat16 with float32 on this machine's CPU: products of matrices in PyTorch, and tokens a second of vLLM.

    PYTHONPATH=gpu-workers .trialgate/venv/bin/python bench/cpu_dtype.py

It is why trainer and engine compute in float32 where the CPU has no instructions for bfloat16.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from real_engine import vllm
from trialgate_gpu.device import computes_in_bfloat16
from trialgate_gpu.engine import http_client

MODEL = Path(__file__).parents[1] / ".trialgate" / "models" / "SmolLM2-135M-Instruct"
DTYPES = (torch.bfloat16, torch.float32)
# The up projection of SmolLM2-135M.
INPUTS, OUTPUTS = 576, 1536
PROMPT, TOKENS = 32, 64


def median_seconds(work: Callable[[], object], times: int = 5) -> float:
    work()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def products(rows: int, dtype: torch.dtype) -> tuple[float, float, float]:
    """Returns the milliseconds of a layer's product, of the gradient of its input, and of its weight."""
    x, y, w = (torch.randn(shape).to(dtype) for shape in ((rows, INPUTS), (rows, OUTPUTS), (OUTPUTS, INPUTS)))
    works = (lambda: x @ w.T, lambda: y @ w, lambda: y.T @ x)
    return tuple(1000 * median_seconds(work) for work in works)


def sample(url: str, number: int) -> None:
    async def ask() -> None:
        async with http_client(url) as client:
            prompt = [100 + (7 * i + number) % 20_000 for i in range(PROMPT)]
            body = {"model": "policy", "prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "logprobs": 1}
            (await client.post("/v1/completions", json=body, timeout=600.0)).raise_for_status()

    asyncio.run(ask())


def main() -> None:
    cpu = torch.device("cpu")
    kind, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    print(f"CPU with {kind}, {threads} threads, computes in bfloat16: {computes_in_bfloat16(cpu)}")
    print(f"\n{'product of matrices, ms':<34}{'forward':>10}{'of input':>10}{'of weight':>10}")
    for rows in (64, 512):
        for dtype in DTYPES:
            found = products(rows, dtype)
            print(f"{rows:>5} rows, {dtype!s:<21}" + "".join(f"{each:>10.1f}" for each in found), flush=True)
    print(f"\n{'vLLM, prompts of 32 tokens, 64 sampled':<40}{'tokens/s':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            name = str(dtype).removeprefix("torch.")
            with vllm(MODEL, Path(folder), name, more=("--dtype", name)) as url:
                sample(url, 0)
                for count in (1, 8):
                    start = time.perf_counter()
                    with ThreadPoolExecutor(count) as pool:
                        list(pool.map(lambda number: sample(url, number), range(count)))
                    speed = count * TOKENS / (time.perf_counter() - start)
                    print(f"{count} at once, {name:<29}{speed:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
