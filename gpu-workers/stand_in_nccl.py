"""Puts vLLM's store over TCP in the place of NCCL where there is no GPU. All else of vLLM's transfer is its own.

Run as a program it is `trialgate_gpu.nccl_process` with the stand-in; STAND_IN_BUFFER_BYTES is the size of a pack.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch


class Communicator:
    available = True
    device = "cpu"

    def __init__(self, group: Any, device: object) -> None:
        print("vLLM's communicator logs to stdout", flush=True)
        self.group = group

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        found = self.group.broadcast(tensor, src)
        tensor.copy_(found)

    def destroy(self) -> None:
        self.group = None


def install(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    from vllm.distributed.device_communicators import pynccl
    from vllm.distributed.utils import StatelessProcessGroup
    from vllm.distributed.weight_transfer import packed_tensor

    create = StatelessProcessGroup.create
    stream = SimpleNamespace(synchronize=lambda: None)
    # vLLM waits 300 s for a sender that is gone.
    patch(StatelessProcessGroup, "create", partial(create, store_timeout=20))
    patch(torch.accelerator, "current_device_index", lambda: 0)
    patch(torch.cuda, "stream", lambda _: nullcontext())
    patch(pynccl, "PyNcclCommunicator", Communicator)
    patch(packed_tensor, "_get_streams", lambda _, number: (stream,) * number)


if __name__ == "__main__":
    from trialgate_gpu import nccl_process

    install()
    nccl_process.BUFFER_BYTES = int(os.environ["STAND_IN_BUFFER_BYTES"])
    nccl_process.main()
