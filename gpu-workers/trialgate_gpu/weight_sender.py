"""Sends a checkpoint's tensors to an engine's workers: over TCP (gloo), or from GPU to GPU (NCCL).

Sender and workers form a group in which the sender is rank 0. It lives for one publication.
"""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.distributed import PrefixStore, ProcessGroupGloo, Store, TCPStore

from .tensor_file import tensor_files

# The longest time that one side waits for the other, for a tensor or to join.
PATIENCE = timedelta(seconds=60)
POLL_SECONDS = 0.02
# The longest time that the process that sends by NCCL takes to import vLLM.
START_SECONDS = 120.0
# NCCL sends tensors packed. Both sides must cut the stream at the same places.
BUFFER_BYTES = 256 << 20
BUFFERS = 2


class Stopped(Exception):
    """Raised in the sending thread when nobody waits for it any more."""


def address_towards(host: str) -> str:
    """Returns the address by which a host reaches this machine."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def join_group(store: Store, rank: int, size: int, address: str, patience: timedelta = PATIENCE) -> ProcessGroupGloo:
    """Waits until all members have joined."""
    if rank > 0:
        store.set(_here(rank), "")
    options = ProcessGroupGloo._Options()
    options._devices = [ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = patience
    return ProcessGroupGloo(PrefixStore("weights", store), rank, size, options)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view in a dtype that gloo takes, whatever the tensor's own is."""
    return tensor.reshape(-1).view(torch.uint8)


def _here(rank: int) -> str:
    """Returns the key that a worker sets when it begins to join."""
    return f"worker {rank} is here"


def weight_files(checkpoint: str) -> list[Path]:
    return tensor_files(Path(checkpoint))


def tensors_of(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors of a model folder as its files map them: they are read when they are sent."""
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)


def largest_items_first(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields them so that in a pack each begins at a multiple of its item's size, without which vLLM cannot unpack."""
    for size in sorted({tensor.dtype.itemsize for _, tensor in tensors_of(files)}, reverse=True):
        yield from ((name, tensor) for name, tensor in tensors_of(files) if tensor.dtype.itemsize == size)


class WeightSender(ABC):
    """`join` and `send` block; `stop` ends them from another thread."""

    @property
    @abstractmethod
    def init_info(self) -> dict[str, Any]:
        """Where the workers join."""

    @property
    @abstractmethod
    def update_info(self) -> dict[str, Any]:
        """What is sent, in order."""

    @abstractmethod
    def join(self) -> None: ...

    @abstractmethod
    def send(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...


class GlooSender(WeightSender):
    """`host` is the engine's."""

    def __init__(self, checkpoint: str, host: str, workers: int, patience: timedelta = PATIENCE) -> None:
        self._files = weight_files(checkpoint)
        self._address = address_towards(host)
        self._size = 1 + workers
        self._patience = patience
        self._store = TCPStore(self._address, 0, self._size, True, patience, wait_for_workers=False)
        self._group: ProcessGroupGloo | None = None
        self._stopped = threading.Event()

    @property
    def init_info(self) -> dict[str, Any]:
        return {"host": self._address, "port": self._store.port, "world_size": self._size}

    @property
    def update_info(self) -> dict[str, Any]:
        names, dtypes, shapes = described(tensors_of(self._files))
        return {"names": names, "dtypes": dtypes, "shapes": shapes}

    def join(self) -> None:
        # Waiting for the group itself could not be stopped.
        workers = [_here(rank) for rank in range(1, self._size)]
        deadline = time.monotonic() + self._patience.total_seconds()
        while not self._store.check(workers):
            if self._stopped.wait(POLL_SECONDS):
                raise Stopped
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(workers)} workers did not all come within {self._patience}")
        self._group = join_group(self._store, 0, self._size, self._address, self._patience)

    def send(self) -> None:
        try:
            for _, tensor in tensors_of(self._files):
                if self._stopped.is_set():
                    raise Stopped
                self._send_one(tensor)
        finally:
            # Drops the last reference, so the connections close and no worker waits for a tensor that does not come.
            self._group = None

    def _send_one(self, tensor: torch.Tensor) -> None:
        if self._group is None:
            raise Stopped
        if tensor.numel() > 0:
            # No variable holds the group, because the traceback of an error would keep it.
            self._group.broadcast(as_bytes(tensor), 0).wait()

    def stop(self) -> None:
        self._stopped.set()


class NcclSender(WeightSender):
    """Drives the process that sends (nccl_process.py), and waits for its start. It needs a GPU that no engine has."""

    COMMAND = (sys.executable, "-m", "trialgate_gpu.nccl_process")

    def __init__(self, checkpoint: str, host: str, workers: int, patience: timedelta = PATIENCE) -> None:
        self._files = weight_files(checkpoint)
        self._size = 1 + workers
        self._address = address_towards(host)
        self._process = subprocess.Popen(
            [*self.COMMAND, checkpoint, self._address, str(workers), str(math.ceil(patience.total_seconds()))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._last_words: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        deadline = threading.Timer(START_SECONDS, self._process.kill)
        deadline.start()
        try:
            self._port = int(self._read())
        except BaseException:
            self.stop()
            raise
        finally:
            deadline.cancel()

    @property
    def init_info(self) -> dict[str, Any]:
        return {
            "master_address": self._address,
            "master_port": self._port,
            "rank_offset": 1,
            "world_size": self._size,
            "packed": True,
            "packed_buffer_size_bytes": BUFFER_BYTES,
            "packed_num_buffers": BUFFERS,
        }

    @property
    def update_info(self) -> dict[str, Any]:
        names, dtypes, shapes = described(largest_items_first(self._files))
        return {"names": names, "dtype_names": dtypes, "shapes": shapes}

    def join(self) -> None:
        self._require("joined")

    def send(self) -> None:
        print("send", file=self._process.stdin, flush=True)
        self._require("sent")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _require(self, word: str) -> None:
        if (found := self._read()) != word:
            raise RuntimeError(f"the process that sends by NCCL said {found!r} in place of {word!r}")

    def _read(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._listener.join(timeout=1.0)
            why = self._last_words[-1] if self._last_words else f"its status is {status}"
            raise RuntimeError(f"the process that sends by NCCL ended: {why}")
        return line.strip()

    def _listen(self) -> None:
        for line in self._process.stderr:
            self._last_words = [*self._last_words[-20:], line.strip()]


def described(tensors: Iterator[tuple[str, torch.Tensor]]) -> tuple[list[str], list[str], list[list[int]]]:
    """Returns the name, dtype and shape of each tensor."""
    found = [(name, str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors]
    names, dtypes, shapes = (list(each) for each in zip(*found, strict=True))
    return names, dtypes, shapes
