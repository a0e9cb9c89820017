"""Runs the GPU worker: python -m trialgate_gpu --temporal-address HOST:PORT --home DIR [--device auto|cpu|cuda]

This process serves Temporal and publishes weights. It uses no GPU: the ranks that it starts do the train steps.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from .errors import GpuWorkerError
from .group.controller import RUN, GroupOptions
from .log import write_log


def address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, found {text!r}")
    return text


def positive(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return value


def parse_arguments(given: list[str] | None = None) -> argparse.Namespace:
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
    parser.add_argument("--threads", type=int, help="CPU threads of a rank (default: its share of what this may use)")
    parser.add_argument(
        "--peak-tflops",
        type=positive,
        default=env("TRIALGATE_PEAK_TFLOPS"),
        help="a device's dense bfloat16 TFLOP/s, for the metric MFU (default: those of known NVIDIA GPUs)",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=env("TRIALGATE_RANKS", "1"),
        help="processes that a model is divided over, one a GPU (default 1)",
    )
    parser.add_argument(
        "--launch",
        default=env("TRIALGATE_LAUNCH", RUN),
        help="command that starts the ranks; `{python}` and `{ranks}` are filled in (default: %(default)s)",
    )
    parser.add_argument(
        "--group-address",
        type=address,
        default=env("TRIALGATE_GROUP_ADDRESS", "127.0.0.1:0"),
        help="HOST:PORT where ranks reach this worker: one of this machine's addresses if they are on others",
    )
    parser.add_argument(
        "--metrics-address",
        type=address,
        default=env("TRIALGATE_METRICS_ADDRESS"),
        help="IP:PORT at which this worker answers Prometheus at /metrics (default: nowhere)",
    )
    parser.add_argument(
        "--log-format",
        choices=["text", "json"],
        default=env("TRIALGATE_LOG_FORMAT", "text"),
        help="form of the log: text, or a JSON object a line (default text)",
    )
    parser.add_argument(
        "--cpu-offload", action="store_true", help="keep a rank's weights and moments in main memory (FSDP2)"
    )
    parser.add_argument(
        "--activation-checkpointing",
        action="store_true",
        help="compute a layer's activations again in the backward pass: less memory, about a third more time",
    )
    return parser.parse_args(given)


def group_options(arguments: argparse.Namespace) -> GroupOptions:
    options = ["--device", arguments.device]
    for name in ("pack_tokens", "threads", "peak_tflops"):
        if (value := getattr(arguments, name)) is not None:
            options += [f"--{name.replace('_', '-')}", str(value)]
    options += [
        f"--{name}"
        for name in ("cpu-offload", "activation-checkpointing")
        if getattr(arguments, name.replace("-", "_"))
    ]
    return GroupOptions(arguments.ranks, arguments.launch, arguments.group_address, options=tuple(options))


async def run(arguments: argparse.Namespace) -> None:
    from .backends.registry import Backends
    from .checkpoint import remove_leftovers
    from .group.backend import LocalBackend
    from .worker import serve

    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    if arguments.home is not None:
        remove_leftovers(Path(arguments.home) / "checkpoints")
    backends = Backends(LocalBackend(group_options(arguments)))
    await serve(arguments.temporal_address, arguments.namespace, backends, stop, arguments.metrics_address)


def main() -> None:
    arguments = parse_arguments()
    write_log(arguments.log_format)
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    logging.getLogger("temporalio.worker._activity").setLevel(logging.CRITICAL)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        asyncio.run(run(arguments))
    except GpuWorkerError as error:
        logging.getLogger("trialgate.gpu").error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
