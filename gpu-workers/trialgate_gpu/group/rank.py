"""One rank: a process of the group that computes. Its controller sends commands; it answers, and beats while it lives.

    python -m torch.distributed.run --nproc-per-node 2 -m trialgate_gpu.group.rank --controller HOST:PORT

Messages are lines of JSON on one TCP connection. The rank ends when the connection closes, so it never outlives its
controller.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from ..device import choose_device, default_pack_tokens, is_out_of_memory, out_of_memory, tune_process
from ..errors import GpuWorkerError, Request
from ..load_base import load_base
from ..progress import Progress
from ..train_step import Trainer
from .launch import die_with_parent
from .world import World, join_world

Json = dict[str, Any]
MakeTrainer = Callable[[torch.device, argparse.Namespace, World], Trainer]
BEAT_SECONDS = 0.5
# With this value a rank proves that its controller started it. On the command line others could read it.
TOKEN = "TRIALGATE_GROUP_TOKEN"


class Controller:
    """This rank's connection. Reading ends the process when the controller is gone."""

    def __init__(self, address: str, hello: Json) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.settimeout(None)
        self._sending = threading.Lock()
        self.commands: queue.Queue[Json] = queue.Queue()
        self.progress: Progress | None = None
        self.send({"hello": hello})
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, message: Json) -> None:
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self._socket.sendall(line)
        except OSError:
            os._exit(1)

    def _read(self) -> None:
        try:
            for line in self._socket.makefile("rb"):
                self.commands.put(json.loads(line))
        finally:
            os._exit(1)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            self.send({"beat": None if self.progress is None else self.progress.state})


def code_digest() -> str:
    """Returns a digest of this package's code and of the libraries that compute: ranks must not differ in it."""
    sha = hashlib.sha256(f"{torch.__version__} {transformers.__version__}".encode())
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        sha.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return sha.hexdigest()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--controller", required=True)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--pack-tokens", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--peak-tflops", type=float)
    parser.add_argument("--compute-dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--cpu-offload", action="store_true")
    parser.add_argument("--activation-checkpointing", action="store_true")
    return parser.parse_args()


def make_trainer(device: torch.device, arguments: argparse.Namespace, world: World) -> Trainer:
    return Trainer(
        device,
        arguments.pack_tokens or default_pack_tokens(device),
        world=world,
        dtype=getattr(torch, arguments.compute_dtype),
        offload=arguments.cpu_offload,
        recompute=arguments.activation_checkpointing,
        peak=arguments.peak_tflops,
    )


def failure(error: Exception, trainer: Trainer | None) -> Json:
    """Returns an error as a message."""
    if trainer is not None and is_out_of_memory(error):
        trainer.forget()
        error = out_of_memory(error, trainer.pack_tokens)
    if isinstance(error, GpuWorkerError):
        return {"kind": error.kind, "message": str(error), "retryable": error.retryable, "trace": None}
    kind = type(error).__name__
    return {"kind": kind, "message": f"{kind}: {error}", "retryable": True, "trace": traceback.format_exc()}


def run_command(trainer: Trainer, command: Json, progress: Progress) -> Json:
    request = Request(command["request"])
    if command["name"] == "loadBase":
        return load_base(trainer, request, progress)
    if command["name"] == "trainStep":
        return trainer.train_step(request, progress)
    raise GpuWorkerError("BadRequest", f"the group knows no command {command['name']!r}")


def main(make: MakeTrainer = make_trainer) -> None:
    die_with_parent(os.getppid())
    logging.basicConfig(level=logging.WARNING, format=f"rank {os.environ['RANK']}: %(message)s", stream=sys.stderr)
    arguments = parse_arguments()
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    hello = {"rank": rank, "size": size, "pid": os.getpid(), "host": socket.gethostname(), "code": code_digest()}
    controller = Controller(arguments.controller, hello | {"token": os.environ.pop(TOKEN, "")})
    trainer = None
    try:
        tune_process(arguments.threads or max(1, len(os.sched_getaffinity(0)) // local_size()))
        device = choose_device(arguments.device, local, local_size())
        trainer = make(device, arguments, join_world(rank, size, device, sharded=arguments.cpu_offload))
        controller.send({"ready": str(device)})
    except Exception as error:
        controller.send({"error": failure(error, None)})
    while True:
        command = controller.commands.get()
        controller.progress = Progress()
        try:
            controller.send({"result": run_command(trainer, command, controller.progress)})
        except Exception as error:
            controller.send({"error": failure(error, trainer)})
        finally:
            controller.progress = None


def local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


if __name__ == "__main__":
    main()
