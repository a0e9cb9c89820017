"""Sends weights to an engine's workers by NCCL: python -m trialgate_gpu.nccl_process FOLDER HOST WORKERS SECONDS

A call of NCCL whose other side died may never return. Only the end of its process ends it, so that each publication
has a process of its own (`NcclSender` in weight_sender.py), which also gives its GPU memory back. It ends with stdin.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator

import torch
from vllm.distributed.device_communicators import pynccl
from vllm.distributed.utils import StatelessProcessGroup
from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer
from vllm.utils.nccl import unpinned_nccl_env

from .weight_sender import BUFFER_BYTES, BUFFERS, largest_items_first, weight_files


def main() -> None:
    # The publisher reads lines from stdout, where vLLM and NCCL also log: their lines go to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    checkpoint, host, workers, seconds = sys.argv[1:]
    told = threading.Event()
    threading.Thread(target=_listen, args=[told], daemon=True).start()
    listening = socket.create_server((host, 0))
    print(listening.getsockname()[1], file=answers, flush=True)
    communicator = _join(listening, host, 1 + int(workers), int(seconds))
    print("joined", file=answers, flush=True)
    told.wait()
    _send(communicator, largest_items_first(weight_files(checkpoint)))
    print("sent", file=answers, flush=True)
    # The workers read what was sent last while this process ends.
    told.clear()
    told.wait()


def _listen(told: threading.Event) -> None:
    for _ in sys.stdin:
        told.set()
    os._exit(0)


def _join(listening: socket.socket, host: str, size: int, seconds: int):
    """Does what vLLM's `stateless_init_process_group` does, on a port that this process already has."""
    port = listening.getsockname()[1]
    group = StatelessProcessGroup.create(host, port, 0, size, store_timeout=seconds, listen_socket=listening)
    with unpinned_nccl_env():
        communicator = pynccl.PyNcclCommunicator(group, torch.accelerator.current_device_index())
    if not communicator.available:
        sys.exit("NCCL is not installed here, or this machine has no GPU")
    return communicator


def _send(communicator, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
    device = torch.device(communicator.device)
    packed_nccl_broadcast_producer(tensors, communicator, 0, lambda item: item[1].to(device), BUFFER_BYTES, BUFFERS)


if __name__ == "__main__":
    main()
