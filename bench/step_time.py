"""Compares a train step with TRL's on the same merged trajectories: seconds, and the peak memory of each process.

    .trialgate/venv/bin/python bench/trl_baseline.py --make-environment .trialgate/bench-venv
    PYTHONPATH=gpu-workers .trialgate/bench-venv/bin/python bench/step_time.py --out bench/results/step-time.txt

A batch is a group of 8 trials: one prompt, then 5 turns, each 64 observed and 64 sampled tokens. A trial whose agent
appends to its conversation is one sequence, so both trainers get 8 sequences. Each trainer has its defaults and a
process of its own, and they take turns, a step each. A step is all between the recorded trajectories and the new
weights; neither loads a model nor writes a checkpoint in it. TRL is measured as it is with an engine that samples
(`use_vllm`: it computes the log-probabilities of its starting weights first, as its correction needs them), and without.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TRIALS, TURNS, TURN_TOKENS = 8, 5, 64
NAMES = {"ours": "Trialgate", "trl": "TRL, its correction on", "trl-plain": "TRL, its correction off"}
Emit = Callable[[dict[str, Any]], None]


def trajectories(prompt: int, vocabulary: int) -> dict[str, Any]:
    """One prompt, and for each trial its other tokens, which of them were sampled, and its reward."""
    draw = np.random.default_rng(prompt)
    tokens = 2 * TURNS * TURN_TOKENS
    return {
        "prompt": draw.integers(100, vocabulary, prompt).tolist(),
        "completions": [draw.integers(100, vocabulary, tokens).tolist() for _ in range(TRIALS)],
        "sampled": np.tile(np.repeat([0, 1], TURN_TOKENS), TURNS).tolist(),
        "rewards": (np.arange(TRIALS) / (TRIALS - 1)).tolist(),
    }


def record(given: dict[str, Any], model: str, folder: Path) -> None:
    """Adds the model's own log-probabilities in place of an engine's recorded ones."""
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


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "trajectories.json").read_text())


def measure_ours(model: str, folder: Path, steps: int, emit: Emit) -> None:
    import torch
    from conftest import row, settings_with, write_batch
    from trialgate_gpu.batch import read_batch
    from trialgate_gpu.checkpoint import TrainerState
    from trialgate_gpu.device import tune_process
    from trialgate_gpu.optimize import optimize
    from trialgate_gpu.optimizer import FlatAdamW
    from trialgate_gpu.policy import Policy
    from trialgate_gpu.prepare import prepare
    from trialgate_gpu.progress import Progress

    tune_process(None)
    given = read(folder)
    prompt = given["prompt"]
    rows = [
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
    path, sha256 = write_batch(folder, rows)
    policy = Policy(Path(model), torch.device("cpu"))
    state = TrainerState(policy, FlatAdamW(policy.master, policy.decayed()))
    settings = settings_with()
    emit({})
    for step in range(steps):
        wait_for_turn()
        start = time.perf_counter()
        prepared = prepare(read_batch(path, sha256, 0), settings, 0)
        metrics = optimize(state, prepared, settings, 2048, step, Progress())
        emit({"seconds": time.perf_counter() - start, "gradient_norm": metrics["actor/grad_norm"]})


def measure_trl(model: str, folder: Path, steps: int, emit: Emit, corrected: bool) -> None:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    given = read(folder)
    logprobs = given["logprobs"]
    found: dict[str, float] = {}

    class Turns(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            wait_for_turn()
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
        callbacks=[Turns()],
    )
    if corrected:
        # This is TRL's branch for sampling with vLLM. The trajectories exist already, so no engine needs the weights.
        trainer.use_vllm, trainer._last_loaded_step = True, -1
        trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
    emit({})
    trainer.train()


def wait_for_turn() -> None:
    if not sys.stdin.readline():
        sys.exit()


def peak_bytes() -> int:
    line = next(text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def child(name: str, model: str, folder: Path, steps: int) -> None:
    """Prints a line of JSON when it is ready and after each step. Output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def emit(found: dict[str, Any]) -> None:
        print(json.dumps(found | {"peak": peak_bytes()}), file=answers, flush=True)

    if name == "ours":
        measure_ours(model, folder, steps, emit)
    else:
        measure_trl(model, folder, steps, emit, name == "trl")


@contextmanager
def started(name: str, arguments: argparse.Namespace, folder: Path) -> Iterator[Callable[[str | None], dict[str, Any]]]:
    command = [sys.executable, __file__, "--child", name, "--folder", str(folder), "--model", arguments.model]
    environment = os.environ | {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(
            [*command, "--repeats", str(arguments.repeats)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        ) as process,
    ):

        def ask(what: str | None) -> dict[str, Any]:
            if what:
                print(what, file=process.stdin, flush=True)
            if line := process.stdout.readline():
                return json.loads(line)
            raise RuntimeError(f"{name} ended: {Path(log.name).read_text()[-2000:]}")

        try:
            yield ask
        finally:
            process.terminate()


def compare(prompt: int, arguments: argparse.Namespace) -> list[str]:
    """Returns the table's rows. The first step of each is not counted."""
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = trajectories(prompt, AutoConfig.from_pretrained(arguments.model).vocab_size)
        (folder / "trajectories.json").write_text(json.dumps(given))
        command = [sys.executable, __file__, "--child", "record", "--folder", name, "--model", arguments.model]
        subprocess.run(command, check=True)
        with (
            started("ours", arguments, folder) as ours,
            started("trl", arguments, folder) as trl,
            started("trl-plain", arguments, folder) as plain,
        ):
            asks = {"ours": ours, "trl": trl, "trl-plain": plain}
            for ask in asks.values():
                ask(None)
            steps = [{each: ask("step") for each, ask in asks.items()} for _ in range(arguments.repeats + 1)]
    rows = []
    for each, label in NAMES.items():
        seconds = [step[each]["seconds"] for step in steps[1:]]
        ratios = [step[each]["seconds"] / step["ours"]["seconds"] for step in steps[1:]]
        rows.append(
            f"{prompt:6}  {label:<23}  {statistics.median(seconds):6.2f}  {min(seconds):6.2f}  {max(seconds):6.2f}  "
            f"{statistics.median(ratios):5.2f} ({min(ratios):.2f}-{max(ratios):.2f})  "
            f"{steps[-1][each]['peak'] / 2**30:8.2f}  {steps[0][each]['gradient_norm']:13.4f}"
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(ROOT / ".trialgate" / "models" / "SmolLM2-135M-Instruct"))
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--repeats", type=int, default=5, help="steps that count, after one that does not")
    parser.add_argument("--out", type=Path, help="file for the table (default: only printed)")
    parser.add_argument("--child", choices=["record", *NAMES], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == "record":
        return record(read(arguments.folder), arguments.model, arguments.folder)
    if arguments.child:
        return child(arguments.child, arguments.model, arguments.folder, arguments.repeats + 1)
    shape = f"{TRIALS} trials, {TURNS} turns of {TURN_TOKENS} observed and {TURN_TOKENS} sampled tokens"
    cores = len(os.sched_getaffinity(0))
    lines = [
        f"{Path(arguments.model).name}, {cores} cores; {shape}; {arguments.repeats} steps each, in turns",
        "prompt  trainer                  median     min     max  seconds / ours      peak GiB  gradient norm",
    ]
    for prompt in arguments.prompts:
        lines += compare(prompt, arguments)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        command = f"$ python bench/step_time.py --repeats {arguments.repeats}"
        arguments.out.write_text(f"{command}\n{time.strftime('%Y-%m-%d')}\n\n{text}")


if __name__ == "__main__":
    main()
