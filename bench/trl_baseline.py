"""Runs TRL's GRPOTrainer on the bundled single-turn tasks, for the curve that Trialgate is compared with.

    .trialgate/bench-venv/bin/python bench/trl_baseline.py --steps 14 --out bench/results/trl.jsonl

Same model, prompts, verifier, samples a step and learning rate as the `oneshot` agent's run; float32 weights with
bfloat16 autocast, since TRL with bfloat16 weights does not learn at such rates. Writes a JSON line a step:
{step, reward_mean, seconds, completion_tokens, samples}. The environment is made by
`.trialgate/venv/bin/python bench/trl_baseline.py --make-environment .trialgate/bench-venv`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent
FENCE = "```"
VERIFIER_SECONDS = 30


def make_environment(folder: Path) -> None:
    """Makes a virtual environment with TRL that also sees this environment's packages (torch, transformers)."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    site = subprocess.check_output([python, "-c", "import sysconfig as s; print(s.get_paths()['purelib'])"], text=True)
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (Path(site.strip()) / "main-environment.pth").write_text(here + "\n")
    from_lock = [
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-r",
        ROOT / "gpu-workers/requirements-trl.txt",
    ]
    subprocess.check_call([python, "-m", "pip", "install", "-q", *from_lock])


def code_block(reply: str) -> str | None:
    """Returns the first closed code block, as the `oneshot` agent does."""
    parts = reply.split(FENCE, 2)
    if len(parts) < 3:
        return None
    language, newline, code = parts[1].partition("\n")
    return code if newline and language.strip().lower() in ("", "python", "py", "python3") else None


def reward(task: Path, reply: str) -> float:
    """Runs the task's own tests/test.sh on the reply's code in a temporary folder; no code is reward 0."""
    code = code_block(reply)
    if code is None:
        return 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("app", "logs/verifier"):
            (folder / part).mkdir(parents=True)
        shutil.copytree(task / "tests", folder / "tests")
        (folder / "app" / "solution.py").write_text(code, errors="replace")
        places = {"TESTS_DIR": folder / "tests", "WORK_DIR": folder / "app", "LOGS_DIR": folder / "logs"}
        environment = {"PATH": os.environ["PATH"], **{key: str(value) for key, value in places.items()}}
        command = ["bash", str(folder / "tests" / "test.sh")]
        try:
            options = {"cwd": folder / "app", "env": environment, "timeout": VERIFIER_SECONDS, "capture_output": True}
            subprocess.run(command, check=False, **options)
            return float((folder / "logs" / "verifier" / "reward.txt").read_text())
        except (subprocess.TimeoutExpired, OSError, ValueError):
            return 0.0


class StepLog:
    """Counts the rewards between two optimizer steps and writes them as a line."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.rewards: list[float] = []
        self.tokens = 0
        self.started = time.perf_counter()

    def score(self, completions: list[Any], task: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        found = [reward(Path(t), c[0]["content"]) for t, c in zip(task, completions, strict=True)]
        self.rewards += found
        self.tokens += sum(len(ids) for ids in completion_ids)
        return found

    def write(self, step: int) -> None:
        now = time.perf_counter()
        line = {
            "step": step,
            "reward_mean": round(sum(self.rewards) / max(len(self.rewards), 1), 4),
            "seconds": round(now - self.started, 2),
            "completion_tokens": self.tokens,
            "samples": len(self.rewards),
        }
        print(json.dumps(line), file=self.out, flush=True)
        self.rewards, self.tokens, self.started = [], 0, now


def prompts(tasks: list[Path], count: int) -> Iterator[dict[str, Any]]:
    for index in range(count):
        task = tasks[index % len(tasks)]
        text = (task / "instruction.md").read_text().strip()
        yield {"prompt": [{"role": "user", "content": text}], "task": str(task)}


def train(arguments: argparse.Namespace, out: TextIO) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tasks = sorted(path.parent for path in (ROOT / "tasks" / "train").glob("*/instruction.md"))[: arguments.tasks]
    log = StepLog(out)

    class WriteStep(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            log.started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            log.write(state.global_step)

    groups = arguments.groups
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-"),
        max_steps=arguments.steps,
        per_device_train_batch_size=arguments.num_generations,
        gradient_accumulation_steps=groups,
        num_generations=arguments.num_generations,
        max_completion_length=arguments.max_completion_length,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=arguments.lr,
        lr_scheduler_type="constant",
        seed=arguments.seed,
        bf16=True,
        use_cpu=not torch.cuda.is_available(),
        shuffle_dataset=len(tasks) > groups,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        logging_steps=1000,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(arguments.model, padding_side="left"),
        reward_funcs=log.score,
        args=config,
        train_dataset=Dataset.from_list(list(prompts(tasks, max(groups * arguments.steps, len(tasks))))),
        callbacks=[WriteStep()],
    )
    trainer.train()
    if arguments.save:
        trainer.model.to(torch.bfloat16).save_pretrained(arguments.save)
        trainer.processing_class.save_pretrained(arguments.save)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make-environment", type=Path, metavar="FOLDER", help="install TRL into FOLDER and end")
    parser.add_argument("--model", default=str(ROOT / ".trialgate" / "models" / "SmolLM2-135M-Instruct"))
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--tasks", type=int, default=8, help="the first N of tasks/train")
    parser.add_argument("--groups", type=int, default=8, help="tasks a step")
    parser.add_argument("--num-generations", type=int, default=8)
    parser.add_argument("--max-completion-length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file for the JSON lines (default: standard output)")
    parser.add_argument("--save", type=Path, help="folder for the trained model")
    arguments = parser.parse_args()
    if arguments.make_environment:
        make_environment(arguments.make_environment)
    elif arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with arguments.out.open("w") as out:
            train(arguments, out)
    else:
        train(arguments, sys.stdout)


if __name__ == "__main__":
    main()
