"""Reads a Parquet file of samples as TRL's and prime-rl's trainers do, for tests/e2e/trl.real.test.ts.

SFTTrainer trains a step on the ids and labels as they are. Of prime-rl only the form is checked that its SFT trainer
reads (`prime_rl/trainer/sft/data.py` at 559b4477: `messages` of text, `tools` as JSON, arguments of calls as JSON),
because prime-rl itself needs CUDA and Python 3.12.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer


def read_parquet(file: str, model: str) -> dict[str, Any]:
    dataset = load_dataset("parquet", data_files=file, split="train")
    for row in dataset:
        assert isinstance(json.loads(row["tools"]), list)
        for message in row["messages"]:
            assert isinstance(message["content"], str)
            for call in message["tool_calls"] or []:
                json.loads(call["function"]["arguments"])
    trainer = SFTTrainer(
        model=model,
        train_dataset=dataset,
        args=SFTConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=len(dataset),
            max_steps=1,
            max_length=None,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
    )
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.train()
    return {
        "rows": [
            {"trial": row["session_id"], **{name: row[name] for name in ("input_ids", "labels")}} for row in dataset
        ],
        "trained": int((batch["labels"] != -100).sum()),
        "steps": trainer.state.global_step,
        "roles": sorted({message["role"] for row in dataset for message in row["messages"]}),
    }
