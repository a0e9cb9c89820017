"""Receives weights inside vLLM: `--weight-transfer-config '{"backend": "gloo"}'`, with the worker extension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import ProcessGroupGloo, TCPStore
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload.inplace import reload_weights

from .vllm_extension import packing_again
from .weight_sender import PATIENCE, address_towards, as_bytes, join_group


@dataclass
class GlooInitInfo(WeightTransferInitInfo):
    """Where the sender waits for `world_size - 1` workers."""

    host: str
    port: int
    world_size: int


@dataclass
class GlooUpdateInfo(WeightTransferUpdateInfo):
    """The tensors of a checkpoint in the order in which they come."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]


class GlooWeightTransferEngine(WeightTransferEngine[GlooInitInfo, GlooUpdateInfo]):
    """One worker's end. It loads nothing before it has received all tensors, so half a transfer changes nothing.

    Meanwhile the checkpoint is in the machine's memory, once for each worker.
    """

    init_info_cls = GlooInitInfo
    update_info_cls = GlooUpdateInfo
    _group: ProcessGroupGloo | None = None
    _received: list[tuple[str, torch.Tensor]] | None = None

    def init_transfer_engine(self, init_info: GlooInitInfo) -> None:
        parallel = self.parallel_config
        rank = 1 + parallel.data_parallel_index * parallel.world_size + parallel.rank
        store = TCPStore(init_info.host, init_info.port, init_info.world_size, False, PATIENCE)
        self._group = join_group(store, rank, init_info.world_size, address_towards(init_info.host))

    def start_weight_update(self) -> None:
        self._received = None

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Does not wait for an accelerator, as vLLM's own does: nothing is loaded yet, and a CPU has none."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: GlooUpdateInfo) -> None:
        if self._group is None:
            raise RuntimeError("init_weight_transfer_engine was not called since the last transfer")
        tensors = []
        for name, dtype, shape in zip(update_info.names, update_info.dtypes, update_info.shapes, strict=True):
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            if tensor.numel() > 0:
                self._group.broadcast(as_bytes(tensor), 0).wait()
            tensors.append((name, tensor))
        self._received = tensors

    def finish_weight_update(self) -> None:
        """Loads what was received as if it came from disk. Does nothing when a transfer broke off."""
        tensors, self._received = self._received, None
        if tensors is None:
            return
        with packing_again(self.model):
            reload_weights(self.vllm_config, self.model, tensors, None, True)

    def shutdown(self) -> None:
        self._group = self._received = None
