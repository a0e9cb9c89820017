"""Starts vLLM on a Unix socket for the tests marked `real`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import torch

from trialgate_gpu.device import choose_device, computes_in_bfloat16
from trialgate_gpu.progress import Progress
from trialgate_gpu.publish import publish_policy

START_SECONDS = 300


@contextmanager
def vllm(model: Path, folder: Path, name: str, *, extension: bool = True, more: Sequence[str] = ()) -> Iterator[str]:
    """Yields the URL of an engine that serves `model` until the block ends. Its log is `folder/name.log`."""
    socket, log = folder / f"{name}.sock", folder / f"{name}.log"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "policy", "--uds", str(socket), "--enforce-eager"]
    command += ["--dtype", "bfloat16" if computes_in_bfloat16(choose_device("auto")) else "float32"]
    command += ["--worker-extension-cls", "trialgate_gpu.vllm_extension.TrialgateWorker"] if extension else []
    command += ["--logprobs-mode", "processed_logprobs", "--enable-scale-out", "--max-model-len", "1024", *more]
    if not torch.cuda.is_available():
        command += ["--distributed-executor-backend", "trialgate_gpu.vllm_executor.InProcessExecutor"]
    environment = os.environ | {
        # The product sets this too: see NO_COMPILER in cli/supervisor/components/engine.ts.
        "TORCH_COMPILE_DISABLE": "0" if torch.cuda.is_available() else "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    environment["VLLM_CACHE_ROOT"] = str(Path(__file__).parents[1] / ".trialgate" / "cache" / "vllm")
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    socket.unlink(missing_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        _wait(socket, process, log)
        yield f"unix:{socket}"
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)


def _wait(socket: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://engine") as client:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if client.get("/health").is_success:
                    return
            except httpx.HTTPError:
                time.sleep(0.5)
    raise RuntimeError(f"vLLM did not start; the end of {log}:\n{log.read_text()[-2000:]}")


async def publish(url: str, version: int, made: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Publishes a version to one engine, and returns the engine's report. `made` is what a step returned."""
    request = {
        "weight_version": f"run@{version}",
        "checkpoint": made["checkpoint"],
        "replicas": [url],
        "min_replicas": 1,
        "canary": made["canary"],
    }
    (report,) = (await publish_policy(request | more, Progress()))["replicas"]
    return report


def previous(version: int, made: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns a version as the one to go back to."""
    return {"weight_version": f"run@{version}", "checkpoint": made["checkpoint"]} | more
