"""Runs the GPU worker with a tiny model, an engine that knows its canary, and a fault in each of the first train steps.

    python gpu-workers/faulty_worker.py --temporal-address HOST:PORT --home DIR --faults reward,loss,memory

Its first line on standard output is JSON: the model, the engine, and a batch for each fault. It ends when its standard
input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from conftest import make_tiny_model, two_groups, write_batch
from faults import NAN, inject
from scripted_engine import ScriptedEngine
from trialgate_gpu.device import tune_process
from trialgate_gpu.manifest import read_manifest
from trialgate_gpu.progress import Progress
from trialgate_gpu.train_step import Trainer
from trialgate_gpu.worker import serve


class FaultyTrainer(Trainer):
    """Injects the next fault into each train step. With `result` the step succeeds with a metric that is NaN."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(torch.device("cpu"), 64)
        self.faults = faults

    def train_step(self, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        fault = self.faults.pop(0) if self.faults else "none"
        with pytest.MonkeyPatch.context() as patch:
            inject(patch, fault)
            made = super().train_step(request, progress)
        return made | {"metrics": {"actor/pg_loss": NAN}} if fault == "result" else made


class FiniteEngine(ScriptedEngine):
    """Refuses weights that are not finite. Answers with the canary of the checkpoint that it loaded."""

    async def reload(self, folder: str) -> tuple[int, dict]:
        tensors = load_file(Path(folder) / "model.safetensors")
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            return 500, {"error": "a weight is not finite"}
        self.logprobs = read_manifest(Path(folder)).canary["logprobs"]
        return await super().reload(folder)


def make_batches(folder: Path, faults: list[str]) -> list[dict[str, str]]:
    batches = []
    for number, fault in enumerate(faults):
        rows = two_groups()
        rows = rows[number:] + rows[:number]
        if fault == "reward":
            rows[0]["rewards"] = [("reward", NAN)]
        path, sha256 = write_batch(folder, rows)
        batches.append({"path": str(path), "sha256": sha256})
    return batches


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--temporal-address", required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--faults", required=True)
    arguments = parser.parse_args()
    faults = arguments.faults.split(",")
    tune_process(1)
    # The test reads the failures from the workflow, so the log stays silent.
    logging.disable(logging.CRITICAL)
    made = {
        "model": str(make_tiny_model(arguments.home / "model")),
        "engine": f"unix:{arguments.home / 'engine.sock'}",
        "batches": make_batches(arguments.home / "batches", faults),
    }
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    async with FiniteEngine(arguments.home / "engine.sock", []).running():
        print(json.dumps(made), flush=True)
        await serve(arguments.temporal_address, "default", FaultyTrainer(faults), stop)


if __name__ == "__main__":
    asyncio.run(main())
