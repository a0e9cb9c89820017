"""Shows the canary's difference for an engine with the right weights and for engines with wrong ones (real vLLM, CPU).

A small real model makes one train step; version N is N such updates beyond the base model. vLLM is given the newest
version, earlier ones, and the newest with one fault. Each row compares vLLM's log-probabilities of the canary with the
trainer's of the newest version. With `--engine none` the trainer's own arithmetic (float32) stands in for vLLM's: then
the rows show the faults alone, and the last one what bfloat16 arithmetic adds.

PYTHONPATH=gpu-workers .trialgate/venv/bin/python bench/canary.py --out bench/results/canary.txt
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from conftest import Run, row
from real_engine import vllm
from trialgate_gpu.checkpoint import load_state
from trialgate_gpu.device import tune_process
from trialgate_gpu.group.placement import Placement
from trialgate_gpu.group.world import World
from trialgate_gpu.head import token_logprobs
from trialgate_gpu.manifest import read_manifest
from trialgate_gpu.measure_canary import canary_token_ids, measure_canary
from trialgate_gpu.pack import chain, make_packs
from trialgate_gpu.policy import Policy
from trialgate_gpu.progress import Progress
from trialgate_gpu.train_step import Trainer
from trialgate_gpu.vllm_engine import VllmEngine

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / ".trialgate" / "models" / "SmolLM2-135M-Instruct"
CPU = torch.device("cpu")
REPLIES = [
    "def add(a, b):\n    return a + b\n",
    "I can not do that, sorry.",
    "return a - b",
    "```python\nadd\n```",
]
TASKS = ("Add two numbers.", "Reverse a string.", "Sort a list.", "Count the vowels.")
ENGINES = {
    "vllm": "vLLM in bfloat16 on a CPU",
    "none": "the trainer's arithmetic in float32 instead of an engine",
}
FP32_HEAD = ["--hf-overrides", '{"head_dtype": "float32"}']
Tensors = dict[str, torch.Tensor]
Change = Callable[[Tensors], None]


def rows(tokenizer) -> list[dict]:
    made = []
    for group, task in enumerate(TASKS):
        prompt = tokenizer(f"<|im_start|>user\n{task}<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
        for trial_index, reply in enumerate(REPLIES):
            ids = tokenizer(f"{reply}# 1\n")["input_ids"]
            reward = ((trial_index + 1 + group) % 4) / 3
            made.append(row(prompt, ids, reward, f"g{group}", f"t{group}-{trial_index}"))
    return made


def layer(number: int, source: Tensors) -> Change:
    def change(tensors: Tensors) -> None:
        tensors.update({k: v for k, v in source.items() if f".layers.{number}." in k})

    return change


def tensor(name: str, made: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(tensors: Tensors) -> None:
        (key,) = [k for k in tensors if k.endswith(name)]
        tensors[key] = made(tensors[key]).contiguous()

    return change


def swapped(name: str, first: int, second: int) -> Change:
    def change(tensors: Tensors) -> None:
        a, b = (f"model.layers.{n}.{name}.weight" for n in (first, second))
        tensors[a], tensors[b] = tensors[b].clone(), tensors[a].clone()

    return change


def in_fp8(tensors: Tensors) -> None:
    for name, value in tensors.items():
        if value.dim() == 2 and "embed" not in name:
            scale = value.abs().amax(1, keepdim=True).float() / 448
            rounded = (value.float() / scale).to(torch.float8_e4m3fn).float() * scale
            tensors[name] = rounded.to(value.dtype)


def figures(seen: np.ndarray, expected: np.ndarray) -> str:
    off = np.abs(seen - expected)
    shares = [f"{100 * np.mean(off > bound):6.1f}" for bound in (0.25, 0.5, 1.0)]
    halves = [f"{off[where].mean():8.4f}" for where in (slice(0, 511), slice(511, None))]
    largest = f"{np.quantile(off, 0.99):8.3f} {off.max():8.3f}"
    return f"{off.mean():8.4f} {' '.join(halves)} {largest} {''.join(shares)} {off[:31].max():8.3f}"


async def ask(url: str, folder: Path, weight_version: str, ids: list[int], method: str | None = None) -> np.ndarray:
    async with VllmEngine(url) as engine:
        await engine.pause()
        await engine.reload(str(folder), method)
        await engine.set_weight_version(weight_version)
        await engine.resume()
        return np.array(await engine.prompt_logprobs(ids, weight_version))


class Table:
    """Prints each line as it comes, and writes all of them to `out`."""

    def __init__(self, out: Path | None) -> None:
        self.out, self.lines = out, []

    def add(self, line: str) -> None:
        print(line, flush=True)
        self.lines.append(line)
        if self.out:
            self.out.write_text("\n".join(self.lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30, help="the newest version")
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--engine", choices=["vllm", "none"], default="vllm")
    parser.add_argument("--home", type=Path, help="keeps the train step for next time")
    parser.add_argument("--out", type=Path, help="file for the table")
    arguments = parser.parse_args()
    tune_process(None)
    home = Path(tempfile.mkdtemp(prefix="canary-"))
    try:
        measure(arguments, home, Table(arguments.out))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def train_once(home: Path, lr: float) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    trainer, run = Trainer(CPU, 2048), Run(home, MODEL)
    base = run.base(trainer)
    request = run.request(
        base["checkpoint"],
        rows(tokenizer),
        1,
        optim={"lr": lr},
        keep_checkpoints=99,
    )
    made = Path(trainer.train_step(request, Progress())["checkpoint"])
    trainer.settle()
    return made


def measure(arguments: argparse.Namespace, home: Path, table: Table) -> None:
    last = arguments.steps
    trained = train_once(arguments.home or home / "home", arguments.lr)
    policy = Policy(MODEL, CPU)
    ids = canary_token_ids(MODEL, policy.model.config)
    start = policy.master.clone()
    state = load_state(trained, read_manifest(trained), Placement(CPU, World()), lambda: None)
    update = state.policy.master - start
    folders: dict[int, Path] = {}
    expected: dict[int, np.ndarray] = {}
    for version in (0, last - 1, last):
        policy.master.copy_(start + version * update)
        policy.refresh()
        expected[version] = np.array(measure_canary(policy, ids).logprobs)
        made = {k: v.clone() for k, v in policy.weights().items()}
        for name in policy.tied_names():
            made.pop(name, None)
        folders[version] = home / f"v{version}"
        write(trained, folders[version], made)
    tensors = {version: load_file(folder / "model.safetensors") for version, folder in folders.items()}
    newest, before, first = tensors[last], tensors[last - 1], tensors[0]
    total = sum(v.numel() for v in newest.values())
    changed = [sum(int((old[k] != v).sum()) for k, v in newest.items()) / total for old in (before, first)]
    table.add(
        f"$ python bench/canary.py --engine {arguments.engine} --steps {last} --lr {arguments.lr:g}    "
        f"{time.strftime('%Y-%m-%d')}"
    )
    table.add(f"{ENGINES[arguments.engine]}, {MODEL.name}, canary of {len(ids)} tokens: half a text, half drawn ids")
    table.add(
        f"bfloat16 weights that differ between version {last} and {last - 1}: {changed[0]:.2%}; "
        f"and version 0: {changed[1]:.2%}"
    )
    table.add(
        "|difference| from the trainer, nats. Columns: mean, mean of the text, of the drawn ids; 99 %, largest; "
        "% of tokens beyond 0.25, 0.5, 1; largest of the first 32 tokens"
    )
    faults: list[tuple[str, Change]] = [
        (f"layer 15 of version {last - 1}", layer(15, before)),
        ("layer 15 of version 0", layer(15, first)),
        ("layer 29 of version 0", layer(29, first)),
        ("two layers' v_proj swapped", swapped("self_attn.v_proj", 14, 15)),
        ("two layers' norms swapped", swapped("input_layernorm", 14, 15)),
        (
            "rows of a k_proj in another order",
            tensor("layers.15.self_attn.k_proj.weight", lambda w: w.flip(0)),
        ),
        (
            "an o_proj of zeros",
            tensor("layers.15.self_attn.o_proj.weight", torch.zeros_like),
        ),
        (
            "a down_proj 10 % too large",
            tensor("layers.15.mlp.down_proj.weight", lambda w: w * 1.1),
        ),
        (
            "100 rows of the embeddings in another order",
            tensor(
                "embed_tokens.weight",
                lambda w: torch.cat([w[:1000], w[1000:1100].flip(0), w[1100:]]),
            ),
        ),
        (
            "20 rows of the embeddings in another order",
            tensor(
                "embed_tokens.weight",
                lambda w: torch.cat([w[:1000], w[1000:1020].flip(0), w[1020:]]),
            ),
        ),
        ("all matrices in FP8", in_fp8),
    ]

    def add_row(name: str, seen: np.ndarray, version: int = last) -> None:
        table.add(f"{name:44} {figures(seen, expected[version])}")

    def changed_by(change: Change) -> Tensors:
        made = {k: v.clone() for k, v in newest.items()}
        change(made)
        return made

    if arguments.engine == "none":
        for version in (last - 1, 0):
            add_row(f"version {version} instead", expected[version])
        for name, change in faults:
            made = changed_by(change)
            for parameter, view in policy._views(policy.compute).items():
                view.copy_(made[parameter])
            add_row(name, np.array(measure_canary(policy, ids).logprobs))
        policy.refresh()
        (pack,) = make_packs(
            [chain(0, np.array(ids), np.arange(len(ids)) > 0, np.zeros(len(ids)), 1.0)],
            len(ids),
        )
        seen = token_logprobs(policy.infer(pack), policy.head, pack).numpy()
        add_row("right, in bfloat16 arithmetic", seen)
        return
    more = ["--max-model-len", "2048"]
    with vllm(MODEL, home, "engine", more=more) as url:
        for version in (0, last):
            seen = asyncio.run(ask(url, folders[version], f"r@{version}", ids))
            add_row(f"right, version {version}", seen, version)
        for version in (last - 1, 0):
            seen = asyncio.run(ask(url, folders[version], f"r@{version}", ids))
            add_row(f"version {version} instead", seen)
        seen = asyncio.run(ask(url, folders[last], "r@stale", ids, "reload_weights"))
        add_row("the packed head of version 0", seen)
        for name, change in faults:
            write(trained, home / "wrong", changed_by(change))
            add_row(name, asyncio.run(ask(url, home / "wrong", "r@wrong", ids)))
    with vllm(MODEL, home, "float32", more=[*more, *FP32_HEAD]) as url:
        seen = asyncio.run(ask(url, folders[last], "r@last", ids))
        add_row(f"right, version {last}, engine's head float32", seen)


def write(source: Path, folder: Path, tensors: Tensors) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("trainer", "*.safetensors")
    shutil.copytree(source, folder, ignore=ignored)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
