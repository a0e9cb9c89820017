"""Provides tests with a tiny random Llama, a run's home, and batches of any shape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trialgate_gpu.load_base import load_base
from trialgate_gpu.progress import Progress
from trialgate_gpu.settings import SCHEMA, TrainerSettings, parse_settings
from trialgate_gpu.train_step import Trainer

# Extra threads slow down models this small, above all on a machine that also does other work.
torch.set_num_threads(1)

BATCH_SCHEMA = pa.schema(
    [
        ("token_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
        ("sampling_mask", pa.list_(pa.list_(pa.int32()))),
        ("policy_versions", pa.list_(pa.int32())),
        ("temperature", pa.float32()),
        ("rewards", pa.map_(pa.utf8(), pa.float64())),
        ("companions", pa.list_(pa.map_(pa.utf8(), pa.float64()))),
        ("group_id", pa.utf8()),
        ("trial_id", pa.utf8()),
        ("attempt", pa.int32()),
        ("call_ids", pa.list_(pa.utf8())),
    ]
)

ROUTED_EXPERTS = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("form", pa.utf8()), ("rows", pa.binary())])
TURN_REWARDS = pa.map_(pa.utf8(), pa.list_(pa.float64()))
# The schema of a batch with rewards turn by turn.
TURN_BATCH_SCHEMA = pa.schema(
    [
        *BATCH_SCHEMA,
        ("turns", pa.list_(pa.int32())),
        ("turn_rewards", TURN_REWARDS),
        ("companion_turn_rewards", pa.list_(TURN_REWARDS)),
    ]
)


def defaults(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: setting["default"] for key, setting in schema["properties"].items() if "default" in setting}


# The trainer's settings of a run file that names none of them.
OPTIM = defaults(SCHEMA["properties"]["optim"])
SETTINGS = defaults(SCHEMA) | {"optim": OPTIM, "loss_scale_factor": 512, "teacher": None, "trainer_server": None}
TEACHER = defaults(SCHEMA["properties"]["teacher"]["anyOf"][0])


def request_settings(**changes: Any) -> dict[str, Any]:
    """Returns the settings of a train step's request. `optim` changes single keys."""
    return SETTINGS | changes | {"optim": OPTIM | changes.get("optim", {})}


def settings_with(**changes: Any) -> TrainerSettings:
    return parse_settings(request_settings(**changes))


def row(prompt: list[int], reply: list[int], reward: float, group: str, trial: str, **changes: Any) -> dict[str, Any]:
    """Returns a sample as an activity writes it: a prompt that is not trained, then a sampled reply."""
    return {
        "token_ids": prompt + reply,
        "loss_mask": [0] * len(prompt) + [1] * len(reply),
        "logprobs": [0.0] * len(prompt) + [-4.0] * len(reply),
        "sampling_mask": None,
        "policy_versions": [None] * len(prompt) + [0] * len(reply),
        "temperature": 1.0,
        "rewards": [("reward", reward)],
        "companions": [],
        "group_id": group,
        "trial_id": trial,
        "attempt": 1,
        "call_ids": ["c"],
    } | changes


def write_batch(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> tuple[Path, str]:
    if schema is None:
        schema = TURN_BATCH_SCHEMA if any("turns" in r for r in rows) else BATCH_SCHEMA
        if any("teacher_logprobs" in r for r in rows):
            schema = schema.append(pa.field("teacher_logprobs", pa.list_(pa.float32())))
        if any("routed_experts" in r for r in rows):
            schema = schema.append(pa.field("routed_experts", pa.list_(ROUTED_EXPERTS)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    payload = sink.getvalue().to_pybytes()
    sha256 = hashlib.sha256(payload).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{sha256}.arrow"
    path.write_bytes(payload)
    return path, sha256


def two_groups(spread: bool = True) -> list[dict[str, Any]]:
    rows = []
    for group in range(2):
        prompt = list(range(3 + group, 23 + group))
        for trial_index in range(4):
            reply = [(7 * trial_index + 3 * i + group) % 60 + 2 for i in range(5 + trial_index)]
            reward = trial_index / 4 if spread else 0.5
            rows.append(row(prompt, reply, reward, f"g{group}", f"t{group}-{trial_index}"))
    return rows


# A run with an adapter.
LORA = {"lora_rank": 4, "lora_alpha": 8.0, "target_modules": "all-linear", "seed": 0}


def make_tiny_model(folder: Path, vocab_size: int = 64, tied: bool = True) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def trainer() -> Trainer:
    return Trainer(torch.device("cpu"), 64)


def step_request(
    home: Path, parent: str, rows: list[dict[str, Any]], version: int = 1, **settings: Any
) -> dict[str, Any]:
    """Returns a train step's input from a parent checkpoint."""
    path, sha256 = write_batch(home / "batches", rows)
    return {
        "run_id": "run",
        "version": version,
        "parent_checkpoint": parent,
        "batch_path": str(path),
        "batch_sha256": sha256,
        "home": str(home),
        "trainer": request_settings(**({"optim": {"lr": 1e-2}} | settings)),
    }


class Run:
    """Keeps a run's home. `base` makes version 0; `request` is a train step's input from a parent checkpoint."""

    def __init__(self, home: Path, model: Path) -> None:
        self.home, self.model = home, model

    def base(self, trainer: Trainer) -> dict[str, Any]:
        return load_base(trainer, {"run_id": "run", "model": str(self.model), "home": str(self.home)}, Progress())

    def request(self, parent: str, rows: list[dict[str, Any]], version: int = 1, **settings: Any) -> dict[str, Any]:
        return step_request(self.home, parent, rows, version, **settings)


@pytest.fixture
def make_run(tmp_path: Path, tiny_model: Path) -> Callable[[str], Run]:
    return lambda name="home": Run(tmp_path / name, tiny_model)
