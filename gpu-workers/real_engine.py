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

import httpx
import torch

START_SECONDS = 300


@contextmanager
def vllm(model: Path, folder: Path, name: str, *, extension: bool = True, more: Sequence[str] = ()) -> Iterator[str]:
    """Yields the URL of an engine that serves `model` until the block ends. Its log is `folder/name.log`."""
    socket, log = folder / f"{name}.sock", folder / f"{name}.log"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "policy", "--uds", str(socket), "--enforce-eager", "--dtype", "bfloat16"]
    command += ["--worker-extension-cls", "trialgate_gpu.vllm_extension.TrialgateWorker"] if extension else []
    command += ["--logprobs-mode", "processed_logprobs", "--enable-scale-out", "--max-model-len", "1024", *more]
    if not torch.cuda.is_available():
        command += ["--distributed-executor-backend", "trialgate_gpu.vllm_executor.InProcessExecutor"]
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
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
