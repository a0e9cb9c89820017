"""Compares a train step with TRL's on the same merged trajectories: seconds, and the peak memory of each process.

    .trialgate/venv/bin/python bench/trl_baseline.py --make-environment .trialgate/bench-venv
    PYTHONPATH=gpu-workers .trialgate/bench-venv/bin/python bench/step_time.py --out bench/results/step-time.txt

A batch is a group of 8 trials: one prompt, then 5 turns, each 64 observed and 64 sampled tokens. A trial whose agent
appends to its conversation is one sequence, so both trainers get 8 sequences. Each trainer has its defaults and a
process of its own. One process runs after the other, because together they need more memory than 24 GiB. A step is all
between the recorded trajectories and the new weights; neither loads a model nor writes a checkpoint in it. The first
step of each process warms up and is not counted. TRL is measured as it is with an engine that samples (`trl`, its
`use_vllm`: it computes the log-probabilities of its starting weights first, as its correction needs them), and on
request without (`--trainers ours trl trl-plain`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TRIALS, TURNS, TURN_TOKENS = 8, 5, 64
NAMES = {"ours": "Trialgate", "trl": "TRL, its correction on", "trl-plain": "TRL, its correction off"}
Emit = Callable[[dict[str, Any]], None]


def trajectories(prompt: int, vocabulary: int) -> dict[str, Any]:
    """Returns a prompt, and for each trial its other tokens, which of them were sampled, and its reward."""
    draw = np.random.default_rng(prompt)
    tokens = 2 * TURNS * TURN_TOKENS
    return {
        "prompt": draw.integers(100, vocabulary, prompt).tolist(),
        "completions": [draw.integers(100, vocabulary, tokens).tolist() for _ in range(TRIALS)],
        "sampled": np.tile(np.repeat([0, 1], TURN_TOKENS), TURNS).tolist(),
        "rewards": (np.arange(TRIALS) / (TRIALS - 1)).tolist(),
    }


def record(given: dict[str, Any], model: str, folder: Path) -> None:
    """Writes the trajectories with the model's own log-probabilities in place of an engine's recorded ones."""
    import torch

    from trialgate_gpu.head import token_logprobs
    from trialgate_gpu.pack import chain, make_packs
    from trialgate_gpu.policy import Policy

    policy = Policy(Path(model), torch.device("cpu"))
    before = len(given["prompt"])
    given["logprobs"] = []
    for completion in given["completions"]:
        ids = np.array(given["prompt"] + completion)
        mask = np.arange(len(ids)) >= before
        (pack,) = make_packs([chain(0, ids, mask, np.zeros(len(ids), np.float32), 1.0)], len(ids))
        given["logprobs"].append(token_logprobs(policy.infer(pack), policy.head, pack).tolist())
    (folder / "trajectories.json").write_text(json.dumps(given))


def rows_of(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the trajectories as the rows of a batch."""
    from conftest import row

    prompt = given["prompt"]
    return [
        row(prompt, completion, reward, "g", f"t{number}")
        | {
            "loss_mask": [0] * len(prompt) + given["sampled"],
            "logprobs": [0.0] * len(prompt) + logprobs,
            "policy_versions": [None] * len(prompt) + [0] * len(completion),
        }
        for number, (completion, reward, logprobs) in enumerate(
            zip(given["completions"], given["rewards"], given["logprobs"], strict=True)
        )
    ]


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "trajectories.json").read_text())


def measure_ours(model: str, folder: Path, steps: int, emit: Emit, rank: int) -> None:
    import torch

    from conftest import settings_with, write_batch
    from trialgate_gpu.batch import read_batch
    from trialgate_gpu.checkpoint import TrainerState
    from trialgate_gpu.device import tune_process
    from trialgate_gpu.lora import Lora
    from trialgate_gpu.optimize import optimize
    from trialgate_gpu.optimizer import FlatAdamW
    from trialgate_gpu.policy import Policy
    from trialgate_gpu.prepare import prepare
    from trialgate_gpu.progress import Progress

    tune_process(None)
    path, sha256 = write_batch(folder, rows_of(read(folder)))
    lora = Lora(rank, float(rank), "all-linear", 0) if rank else None
    policy = Policy(Path(model), torch.device("cpu"), lora=lora)
    state = TrainerState(policy, FlatAdamW(policy.master, policy.decayed()))
    settings = settings_with(lora_rank=rank, lora_alpha=float(rank))
    for step in range(steps):
        start = time.perf_counter()
        prepared = prepare(read_batch(path, sha256, 0), settings, 0)
        metrics = optimize(state, prepared, settings, 2048, step, Progress())
        emit({"seconds": time.perf_counter() - start, "gradient_norm": metrics["actor/grad_norm"]})


def measure_trl(model: str, folder: Path, steps: int, emit: Emit, rank: int, corrected: bool) -> None:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    given = read(folder)
    logprobs = given["logprobs"]
    found: dict[str, float] = {}

    class Clock(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            found["start"] = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            found["seconds"] = time.perf_counter() - found["start"]

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
            if logs and "grad_norm" in logs:
                emit({"seconds": found["seconds"], "gradient_norm": float(logs["grad_norm"])})

    def rollouts(prompts: list[Any], _: Any) -> dict[str, Any]:
        assert len(prompts) == TRIALS
        return {
            "prompt_ids": [given["prompt"]] * TRIALS,
            "completion_ids": given["completions"],
            "logprobs": logprobs,
            "env_mask": [given["sampled"]] * TRIALS,
        }

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: given["rewards"],
        args=GRPOConfig(
            output_dir=str(folder / f"trl-{corrected}"),
            max_steps=steps,
            max_completion_length=2 * TURNS * TURN_TOKENS,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            logging_steps=1,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": "p"}] * steps),
        rollout_func=rollouts,
        peft_config=LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear", task_type="CAUSAL_LM")
        if rank
        else None,
        callbacks=[Clock()],
    )
    if corrected:
        # This is TRL's branch for sampling with vLLM. The trajectories exist already, so no engine needs the weights.
        trainer.use_vllm, trainer._last_loaded_step = True, -1
        trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
    trainer.train()


def peak_bytes() -> int:
    line = next(text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def child(name: str, model: str, folder: Path, steps: int, rank: int) -> None:
    """Prints a line of JSON after each step. Output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def emit(found: dict[str, Any]) -> None:
        print(json.dumps(found | {"peak": peak_bytes()}), file=answers, flush=True)

    if name == "ours":
        measure_ours(model, folder, steps, emit, rank)
    else:
        measure_trl(model, folder, steps, emit, rank, name == "trl")


def run_child(name: str, arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Runs a child to its end and yields each line of JSON that it prints."""
    command = [sys.executable, __file__, "--child", name, "--folder", str(folder), "--model", arguments.model]
    command += ["--repeats", str(arguments.repeats), "--lora-rank", str(arguments.lora_rank)]
    environment = os.environ | {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    path = folder / f"{name}.log"
    with (
        path.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"the process '{name}' ended {ending(process.returncode)}:\n{path.read_text()[-2000:]}")


def ending(returncode: int) -> str:
    """Says how a process ended. The kernel ends a process by SIGKILL when the machine is out of memory."""
    return f"by {signal.Signals(-returncode).name}" if returncode < 0 else f"with exit status {returncode}"


def measure(name: str, prompt: int, arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Returns what each step of a trainer reported, and prints its seconds as it comes."""
    steps = []
    for step in run_child(name, arguments, folder):
        number = f"step {len(steps)} of {arguments.repeats}" if steps else "warm-up step"
        print(f"prompt {prompt}, {NAMES[name]}, {number}: {step['seconds']:.2f} s", file=sys.stderr, flush=True)
        steps.append(step)
    return steps


def compare(prompt: int, arguments: argparse.Namespace) -> list[str]:
    """Returns the table's rows for this length of the prompt."""
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = trajectories(prompt, AutoConfig.from_pretrained(arguments.model).vocab_size)
        (folder / "trajectories.json").write_text(json.dumps(given))
        list(run_child("record", arguments, folder))
        measured = {each: measure(each, prompt, arguments, folder) for each in arguments.trainers}
    of_ours = statistics.median(step["seconds"] for step in measured["ours"][1:]) if "ours" in measured else math.nan
    rows = []
    for each, (warm_up, *steps) in measured.items():
        seconds = [step["seconds"] for step in steps]
        ratios = [one / of_ours for one in seconds]
        rows.append(
            f"{prompt:6}  {NAMES[each]:<23}  {statistics.median(seconds):6.2f}  {min(seconds):6.2f}  "
            f"{max(seconds):6.2f}  {statistics.median(ratios):5.2f} ({min(ratios):.2f}-{max(ratios):.2f})  "
            f"{steps[-1]['peak'] / 2**30:8.2f}  {warm_up['gradient_norm']:13.4f}"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(ROOT / ".trialgate" / "models" / "SmolLM2-135M-Instruct"))
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--trainers", nargs="+", choices=NAMES, default=["ours", "trl"])
    parser.add_argument(
        "--lora-rank", type=int, default=0, help="train an adapter of all linear layers (0: all weights)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="steps that count, after one that does not")
    parser.add_argument("--out", type=Path, help="file for the table (default: only printed)")
    parser.add_argument("--child", choices=["record", *NAMES], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == "record":
        return record(read(arguments.folder), arguments.model, arguments.folder)
    if arguments.child:
        return child(arguments.child, arguments.model, arguments.folder, arguments.repeats + 1, arguments.lora_rank)
    each = f"{arguments.repeats} steps each, one process after the other"
    shape = f"{TRIALS} trials, {TURNS} turns of {TURN_TOKENS} observed and {TURN_TOKENS} sampled tokens"
    cores = len(os.sched_getaffinity(0))
    what = f"LoRA of rank {arguments.lora_rank}" if arguments.lora_rank else "all weights"
    lines = [
        f"{Path(arguments.model).name}, {what}, {cores} cores; {shape}; {each}",
        # The ratio is to the median of ours.
        "prompt  trainer                  median     min     max  seconds / ours      peak GiB  gradient norm",
    ]
    for prompt in arguments.prompts:
        lines += compare(prompt, arguments)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        given = " ".join(["--trainers", *arguments.trainers, "--prompts", *map(str, arguments.prompts)])
        command = f"$ python bench/step_time.py {given} --repeats {arguments.repeats} --lora-rank {arguments.lora_rank}"
        arguments.out.write_text(f"{command}\n{time.strftime('%Y-%m-%d')}\n\n{text}")


if __name__ == "__main__":
    main()
