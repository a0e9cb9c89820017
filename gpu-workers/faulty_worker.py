"""Runs the GPU worker with a tiny model, engines that know their canary, and a fault in each of the first train steps.

    python gpu-workers/faulty_worker.py --temporal-address HOST:PORT --home DIR --faults reward,loss,memory

`--namespace` names another namespace than Temporal's `default`.

Its first line on standard output is JSON: the model, the engine, an engine for adapters, a trainer server that forgets
its models during the first step of a run, and a batch for each fault. It ends when its standard input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import threading
from pathlib import Path

from safetensors.torch import load_file

import tinker_server
from conftest import make_tiny_model, two_groups, write_batch
from faults import NAN
from scripted_engine import ScriptedEngine
from trialgate_gpu.backends.registry import Backends
from trialgate_gpu.group.backend import LocalBackend
from trialgate_gpu.group.controller import GroupOptions
from trialgate_gpu.manifest import read_manifest
from trialgate_gpu.worker import serve


class FiniteEngine(ScriptedEngine):
    """Refuses weights that are not finite. Answers with the canary of the checkpoint that it loaded."""

    async def reload(self, folder: str) -> tuple[int, dict]:
        tensors = load_file(Path(folder) / "model.safetensors")
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            return 500, {"error": "a weight is not finite"}
        # The first adapter changes nothing, so version 0 has the canary of its base.
        version = Path(folder).parent if Path(folder).name == "base" else Path(folder)
        self.logprobs = read_manifest(version).canary["logprobs"]
        return await super().reload(folder)

    def change_adapter(self, route: str, body: dict) -> tuple[int, dict]:
        if route == "/load_lora_adapter" and body["lora_path"]:
            self.adapter_logprobs = read_manifest(Path(body["lora_path"])).canary["logprobs"]
        return super().change_adapter(route, body)


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


def start_trainer_server(model: str, state: Path) -> str:
    """Starts a server that forgets its models at the fourth update: version 0 makes three to measure it."""
    forgets = ["--forget", "optim_step:4"]
    _, http = tinker_server.start(tinker_server.parse_arguments([model, "--state", str(state), *forgets]))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{http.server_address[1]}"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--temporal-address", required=True)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--faults", required=True)
    arguments = parser.parse_args()
    faults = arguments.faults.split(",")
    # The test reads the failures from the workflow, so the log stays silent.
    logging.disable(logging.CRITICAL)
    model = str(make_tiny_model(arguments.home / "model"))
    made = {
        "model": model,
        "adapter_engine": f"unix:{arguments.home / 'adapters.sock'}",
        "trainer_server": start_trainer_server(model, arguments.home / "server"),
        "engine": f"unix:{arguments.home / 'engine.sock'}",
        "batches": make_batches(arguments.home / "batches", faults),
    }
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    adapters = FiniteEngine(arguments.home / "adapters.sock", [], max_lora_rank=8)
    async with FiniteEngine(arguments.home / "engine.sock", []).running(), adapters.running():
        print(json.dumps(made), flush=True)
        os.environ["TRIALGATE_FAULTS"] = arguments.faults
        options = ("--device", "cpu", "--threads", "1", "--pack-tokens", "64")
        backends = Backends(LocalBackend(GroupOptions(module="faulty_rank", options=options)))
        await serve(arguments.temporal_address, arguments.namespace, backends, stop)


if __name__ == "__main__":
    asyncio.run(main())
