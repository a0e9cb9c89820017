"""Receives weights in place of a vLLM worker, for the scripted engine.

The order of the phases and what each refuses are those of vLLM 0.32's v1/worker/gpu_worker.py. The tensors do travel:
by gloo, or with vLLM's own receiver for NCCL over the stand-in of stand_in_nccl.py.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.distributed import TCPStore

from trialgate_gpu.weight_sender import address_towards, as_bytes, join_group, tensors_of, weight_files

PATIENCE = timedelta(seconds=5)
Json = dict[str, Any]
Weights = dict[str, torch.Tensor]
INIT, START, UPDATE, FINISH, SHUTDOWN = PHASES = (
    "/init_weight_transfer_engine",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/shutdown_weight_transfer_engine",
)


def digest_of(weights: Weights) -> str:
    content = [(n, str(t.dtype), tuple(t.shape), as_bytes(t).tolist()) for n, t in sorted(weights.items())]
    return hashlib.sha256(repr(content).encode()).hexdigest()


def digest_of_folder(folder: str | Path) -> str:
    return digest_of(dict(tensors_of(weight_files(str(folder)))))


class Receiver(Protocol):
    def join(self, info: Json) -> None: ...

    def receive(self, info: Json, most: int | None) -> Weights: ...

    def leave(self) -> None: ...


class GlooReceiver:
    """Does what vllm_transfer.py does. `most`: it leaves after so many tensors."""

    def join(self, info: Json) -> None:
        store = TCPStore(info["host"], info["port"], info["world_size"], False, PATIENCE)
        self._group = join_group(store, 1, info["world_size"], address_towards(info["host"]), PATIENCE)

    def receive(self, info: Json, most: int | None) -> Weights:
        received: Weights = {}
        for name, dtype, shape in zip(info["names"], info["dtypes"], info["shapes"], strict=True):
            if len(received) == most:
                self.leave()
                raise ConnectionResetError
            received[name] = tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            self._group.broadcast(as_bytes(tensor), 0).wait()
        return received

    def leave(self) -> None:
        self._group = None


class NcclReceiver:
    """vLLM's own, which parses what it is told and cuts the stream of tensors itself."""

    def __init__(self) -> None:
        from vllm.config.weight_transfer import WeightTransferConfig
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

        self.received: Weights = {}
        parallel = SimpleNamespace(data_parallel_index=0, world_size=1, rank=0)
        config = SimpleNamespace(parallel_config=parallel, model_config=None)
        model = SimpleNamespace(load_weights=self._load)
        device = torch.device("cpu")
        self._engine = NCCLWeightTransferEngine(WeightTransferConfig(backend="nccl"), config, device, model)

    def join(self, info: Json) -> None:
        self._engine.init_transfer_engine(self._engine.parse_init_info(info))

    def receive(self, info: Json, most: int | None) -> Weights:
        self.received = {}
        self._engine.receive_weights(self._engine.parse_update_info(info))
        return self.received

    def leave(self) -> None:
        self._engine.shutdown()

    def _load(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        self.received |= {name: tensor.clone() for name, tensor in weights}


@dataclass
class ScriptedTransfer:
    """`fault` is a phase, and what happens in it once.

    `refuse`: it answers 500. `break`: the connection ends before it does anything. `lose`: it does it, and the answer
    is lost. `leave`: it leaves in the middle of the tensors. `wait`: it never answers. `call`: `called` is called
    before it does anything.
    """

    backend: str
    receiver: Receiver
    fault: tuple[str, str] | None = None
    called: Callable[[], None] = lambda: None
    routes: list[str] = field(default_factory=list)
    active: bool = False
    received: Weights | None = None

    async def answer(self, route: str, body: Json) -> tuple[int, Json, str | None]:
        """Returns status, answer, and the digest of the weights if it has loaded some."""
        self.routes.append(route)
        fault = self.fault[1] if self.fault and self.fault[0] == route else None
        if fault:
            self.fault = None
        match fault:
            case "refuse":
                return 500, {"error": "refused on purpose"}, None
            case "break":
                raise ConnectionResetError
            case "wait":
                await asyncio.Event().wait()
            case "call":
                self.called()
        try:
            loaded = await asyncio.to_thread(self._do, route, body, 1 if fault == "leave" else None)
        except ConnectionResetError:
            raise
        except Exception as error:
            return 500, {"error": f"{type(error).__name__}: {error}"}, None
        if fault == "lose":
            raise Lost(loaded)
        return 200, {}, loaded

    def _do(self, route: str, body: Json, most: int | None) -> str | None:
        if route == INIT:
            self.receiver.join(body["init_info"])
        elif route == START:
            if self.active:
                raise RuntimeError("start_weight_update called while a weight update is already active")
            self.active, self.received = True, None
        elif route == UPDATE:
            if not self.active:
                raise RuntimeError("start_weight_update must be called before update_weights.")
            try:
                self.received = self.receiver.receive(body["update_info"], most)
            except BaseException:
                self.active = False
                raise
        elif route == FINISH:
            if not self.active:
                raise RuntimeError("finish_weight_update called without a matching start_weight_update.")
            self.active = False
            received, self.received = self.received, None
            return digest_of(received) if received is not None else None
        elif self.active:
            raise RuntimeError("Cannot release a trainer connection during a weight update")
        else:
            self.receiver.leave()
        return None


class Lost(ConnectionResetError):
    """Raised when the answer is lost. `loaded` is the digest of the weights if it has loaded some."""

    def __init__(self, loaded: str | None) -> None:
        super().__init__()
        self.loaded = loaded
