"""Runs the GPU worker: python -m trialgate_gpu --temporal-address HOST:PORT --home DIR [--device auto|cpu|cuda]"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from .device import choose_device, tune_process
from .errors import GpuWorkerError


def parse_arguments() -> argparse.Namespace:
    env = os.environ.get
    parser = argparse.ArgumentParser(
        prog="trialgate-gpu-worker", description="Trialgate's trainer and weight publisher."
    )
    parser.add_argument("--temporal-address", default=env("TRIALGATE_TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    parser.add_argument("--namespace", default="default")
    parser.add_argument(
        "--home",
        type=Path,
        default=env("TRIALGATE_HOME"),
        help="the deployment's folder; temporary folders that killed steps left in its checkpoints/ are removed",
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default=env("TRIALGATE_DEVICE", "auto"))
    parser.add_argument(
        "--pack-tokens", type=int, help="tokens computed at once (default 2048 on a CPU, 16384 on a GPU)"
    )
    parser.add_argument("--threads", type=int, help="CPU threads (default: all this process may use)")
    return parser.parse_args()


async def run(arguments: argparse.Namespace) -> None:
    from .checkpoint import remove_leftovers
    from .train_step import Trainer
    from .worker import serve

    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    if arguments.home is not None:
        remove_leftovers(Path(arguments.home) / "checkpoints")
    device = choose_device(arguments.device)
    pack_tokens = arguments.pack_tokens or (2048 if device.type == "cpu" else 16384)
    await serve(arguments.temporal_address, arguments.namespace, Trainer(device, pack_tokens), stop)


def main() -> None:
    arguments = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    logging.getLogger("temporalio.worker._activity").setLevel(logging.CRITICAL)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    tune_process(arguments.threads)
    try:
        asyncio.run(run(arguments))
    except GpuWorkerError as error:
        sys.exit(f"gpu worker: {error}")


if __name__ == "__main__":
    main()
