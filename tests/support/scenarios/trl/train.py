"""Trains with TRL on a gateway's trials, one trainer after another on the same engine, for tests/e2e/trl.real.test.ts.

python train.py --model FOLDER --tasks FOLDER --try-command JSON --try-run FILE

Prints a line of JSON for each case, or its error: the samples that the trainer got, its log, and how far the engine is
from the trainer's weights. One process has all cases, because importing PyTorch and TRL takes longer than most of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
import types
import urllib.request
from typing import Any
from zlib import crc32

import torch
from datasets import Dataset
from peft import LoraConfig
from read_parquet import read_parquet
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

import trialgate_parquet
from trialgate_gpu.engine import connect
from trialgate_trl import Trial, Trialgate, sandboxed

GENERATIONS = 4
PROBE = [(11 * i) % 60 + 2 for i in range(200)]
NAMES = ["Ada", "Grace", "Edsger", "Barbara"]


def ask(trial: Trial, messages: list[dict[str, Any]]) -> str:
    body = json.dumps({"model": trial.model, "messages": messages, "top_p": 0.9, "temperature": 0.2}).encode()
    headers = {"Authorization": f"Bearer {trial.api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{trial.base_url}/chat/completions", data=body, headers=headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"] or ""


def two_turns(trial: Trial) -> float:
    """Asks twice. The trainer's sampling must win over what it asks for."""
    messages = list(trial.prompt)
    replies = []
    for _ in range(2):
        reply = ask(trial, messages)
        replies.append(reply)
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "Again, please."}]
    # Trials of a group have equal rewards, and so nothing to learn, only if all that they say is equal.
    return crc32("".join(replies).encode()) / 2**32


def without_cuda() -> None:
    """AsyncGRPOTrainer needs CUDA in two places: its attention kernel, and the name of the GPU for its metrics."""

    def varlen(query, key, value, starts_q, starts_k, _longest_q, _longest_k, *, softmax_scale=None, **_):
        parts = []
        for i in range(len(starts_q) - 1):
            q = query[starts_q[i] : starts_q[i + 1]]
            k, v = (each[starts_k[i] : starts_k[i + 1]] for each in (key, value))
            seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
            heads = (each.transpose(0, 1)[None] for each in (q, k, v))
            out = torch.nn.functional.scaled_dot_product_attention(
                *heads, attn_mask=seen, scale=softmax_scale, enable_gqa=True
            )
            parts.append(out[0].transpose(0, 1))
        return torch.cat(parts)

    packing._flash_attn = lambda: types.SimpleNamespace(flash_attn_varlen_func=varlen)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None


def logprobs_of(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        out = model(input_ids=torch.tensor([PROBE])).logits[0].float().log_softmax(-1)
    return out[:-1].gather(1, torch.tensor(PROBE[1:])[:, None])[:, 0]


async def distances(trialgate: Trialgate, model: torch.nn.Module, base: str) -> dict[str, float | str]:
    """Returns how far the engine's log-probabilities are from the trainer's and from the base model's, in nats."""
    (url,) = await trialgate.weights._urls()
    async with await connect(url) as engine:
        version = await engine.weight_version()
        seen = torch.tensor(await engine.prompt_logprobs(PROBE, version))
    first = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return {
        "weight_version": version,
        "from_trainer": (seen - logprobs_of(model)).abs().mean().item(),
        "from_base": (seen - logprobs_of(first)).abs().mean().item(),
    }


def rows_of(done: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "trial": done["trial_id"][i],
            "token_ids": done["prompt_ids"][i] + done["completion_ids"][i],
            "mask": [0] * len(done["prompt_ids"][i]) + done["env_mask"][i],
            "logprobs": [0.0] * len(done["prompt_ids"][i]) + done["logprobs"][i],
            "versions": done["policy_versions"][i],
            "reward": done["trial_reward"][i],
        }
        for i in range(len(done["trial_id"]))
    ]


def sampled(sample: Any) -> dict[str, Any]:
    return {
        "token_ids": sample.input_ids.tolist(),
        "mask": sample.completion_mask.tolist(),
        "logprobs": sample.old_log_probs.tolist(),
        "versions": [sample.model_version],
        "reward": sample.metrics["reward"],
    }


def train(trainer_name: str, model_folder: str, agent: Any, rows: list[dict[str, Any]], steps: int, lora: bool) -> Any:
    """Trains `steps` steps and returns what the trainer got and where it and the engine ended."""
    trialgate = Trialgate.from_env(agent, max_trials=GENERATIONS)
    dataset = Dataset.from_list(rows)
    shared = {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": GENERATIONS,
        "num_generations": GENERATIONS,
        "max_steps": steps,
        "max_completion_length": 8,
        "learning_rate": 4e-2 if lora else 2e-3,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }
    adapter = LoraConfig(r=8, target_modules="all-linear") if lora else None
    seen: list[dict[str, Any]] = []
    if trainer_name == "grpo":

        def recorded(prompts, trainer):
            done = trialgate.rollout_func(prompts, trainer)
            seen.extend(rows_of(done))
            return done

        trainer = GRPOTrainer(
            model=model_folder,
            reward_funcs=trialgate.reward,
            args=GRPOConfig(**shared),
            train_dataset=dataset,
            rollout_func=recorded,
            peft_config=adapter,
        )
        trainer.train()
        # The last step's weights have not been asked for yet.
        trialgate.rollout_func._sync(trainer)
    else:
        without_cuda()
        args = AsyncGRPOConfig(**shared, token_budget=0, max_staleness=1, queue_maxsize=8)
        worker = trialgate.worker(dataset, args)
        take = worker.rollout_buffer.get

        def taken(**how):
            sample = take(**how)
            seen.append(sampled(sample))
            return sample

        worker.rollout_buffer.get = taken
        trainer = AsyncGRPOTrainer(
            model=model_folder,
            args=args,
            train_dataset=dataset,
            rollout_worker=worker,
            weight_transfer=trialgate.weights,
            peft_config=adapter,
            callbacks=[TrainerCallback()],
        )
        trainer.train()
    model = trainer.model
    if lora:
        model = model.merge_and_unload()
    # Tree attention takes packed rows only.
    model.set_attn_implementation("sdpa")
    return {
        "name": trialgate.weights.name,
        "version": trialgate.weights.version,
        "steps": trainer.state.global_step,
        "samples": seen,
        "log": [entry for entry in trainer.state.log_history if "loss" in entry],
        **asyncio.run(distances(trialgate, model.eval(), model_folder)),
    }


def parquet(file: str, model: str) -> Any:
    """Writes the samples that were scored in a sandbox as a person would, and trains on them."""
    command = [sys.executable, trialgate_parquet.__file__, file, "--outcome", "scored"]
    written = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {"written": written, **read_parquet(file, model)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--tasks", required=True)
    parser.add_argument("--try-command", type=json.loads, required=True)
    parser.add_argument("--try-run", required=True)
    given = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    key = os.environ["TRIALGATE_ADMIN_KEY"]

    def trained(trainer: str, lora: bool) -> Any:
        rows = [{"prompt": [{"role": "user", "content": f"Say hello to {name}."}]} for name in NAMES]
        return train(trainer, given.model, two_turns, rows, 2, lora)

    def in_sandboxes() -> Any:
        agent = sandboxed(given.tasks, command=given.try_command, options=["--run", given.try_run])
        return train("grpo", given.model, agent, agent.prompts(), 1, False)

    # Each starts with the base model's weights on an engine that has other weights from before.
    cases = {
        "grpo": lambda: trained("grpo", False),
        "grpo lora": lambda: trained("grpo", True),
        "async": lambda: trained("async", False),
        "async lora": lambda: trained("async", True),
        "sandboxed": in_sandboxes,
        "parquet": lambda: parquet(os.path.join(tempfile.mkdtemp(), "samples.parquet"), given.model),
    }
    for name, do in cases.items():
        started = time.process_time()
        # Trialgate.from_env takes the key out of the environment.
        os.environ["TRIALGATE_ADMIN_KEY"] = key
        try:
            done = do()
        except Exception:
            done = {"error": traceback.format_exc()}
        print(f"{name}: {time.process_time() - started:.1f} s of processor time", file=sys.stderr, flush=True)
        print(json.dumps({"case": name, **done}), flush=True)


if __name__ == "__main__":
    main()
