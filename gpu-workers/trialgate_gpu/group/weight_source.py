"""Reads a model's weights for its ranks, one tensor at a time where its files have them as the model does.

Otherwise transformers loads the whole model into the main memory of rank 0: where the files have another dtype than the
configuration says, or tensors that transformers joins, such as the experts of a mixture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ..attention import register
from ..errors import GpuWorkerError
from ..lora import ADAPTER_PARTS, Lora, add_adapter
from ..policy import load_model
from ..tensor_file import DTYPES, read_tensor


class WeightSource(Protocol):
    """`buffers` are those of the loaded model."""

    buffers: dict[str, torch.Tensor]
    dtypes: dict[str, torch.dtype]

    def weight(self, name: str) -> torch.Tensor:
        """Returns a parameter, by the name that it has in the model with its adapter."""


class _Loaded:
    def __init__(self, folder: Path, lora: Lora | None) -> None:
        model = load_model(folder).eval()
        if lora is not None:
            add_adapter(model, lora)
        self.buffers = dict(model.named_buffers())
        self._weights = dict(model.named_parameters())
        self.dtypes = {name: each.dtype for name, each in self._weights.items()}

    def weight(self, name: str) -> torch.Tensor:
        return self._weights[name].detach()


class _Files:
    """`model` has its buffers; its parameters are on the device `meta`."""

    def __init__(self, model: PreTrainedModel, stored: dict[str, Path], lora: Lora | None) -> None:
        if lora is not None:
            _put_on_cpu(model)
            add_adapter(model, lora)
        self._stored = stored
        self._weights = dict(model.named_parameters())
        self.dtypes = {name: each.dtype for name, each in self._weights.items()}
        self.buffers = {
            name: self._read(name).to(each.dtype) if _name_in_files(name) in stored else each
            for name, each in model.named_buffers()
        }

    def weight(self, name: str) -> torch.Tensor:
        if any(part in name for part in ADAPTER_PARTS):
            return self._weights[name].detach()
        return self._read(name)

    def _read(self, name: str) -> torch.Tensor:
        name = _name_in_files(name)
        try:
            return read_tensor(self._stored[name], name)
        except (SafetensorError, OSError) as error:
            what = f"{self._stored[name]} cannot be read: {error}"
            raise GpuWorkerError("BadModel", f"{what}; download it again or choose another model") from error


def _name_in_files(name: str) -> str:
    return name.replace(".base_layer.", ".")


def weight_source(folder: Path, config: PreTrainedConfig, lora: Lora | None) -> WeightSource:
    """Raises `BadModel` when the files cannot be read."""
    with _weights_on_meta():
        model = AutoModelForCausalLM.from_config(config, dtype=config.dtype, attn_implementation=register())
    try:
        stored = _stored_tensors(folder)
        if all(_is_stored(each, name, stored) for name, each in model.named_parameters()):
            return _Files(model.eval(), stored, lora)
    except (SafetensorError, OSError, ValueError, KeyError):
        # transformers says what is wrong with the files.
        pass
    return _Loaded(folder, lora)


def _stored_tensors(folder: Path) -> dict[str, Path]:
    """Returns the file of each tensor that transformers would load. Others in the folder are not part of the model."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.exists():
        with safe_open(whole, "pt") as file:
            return dict.fromkeys(file.keys(), whole)
    if not index.exists():
        return {}
    return {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}


def _is_stored(parameter: torch.Tensor, name: str, stored: dict[str, Path]) -> bool:
    if name not in stored:
        return False
    with safe_open(stored[name], "pt") as file:
        found = file.get_slice(name)
        return (found.get_shape(), found.get_dtype()) == (list(parameter.shape), DTYPES[parameter.dtype])


def _put_on_cpu(model: nn.Module) -> None:
    """Replaces each parameter by one number that is repeated: peft puts an adapter where the layer's weight is."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, each in module._parameters.items():
            if each is not None:
                repeated = nn.Parameter(torch.zeros((), dtype=each.dtype).expand(each.shape))
                module._parameters[name] = made.setdefault(id(each), repeated)


@contextmanager
def _weights_on_meta() -> Iterator[None]:
    """Makes modules put each parameter on the device `meta` when they get it. Buffers get their values."""
    plain = nn.Module.register_parameter

    def register_parameter(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        # One that is there already is tied to another.
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        plain(module, name, parameter)

    nn.Module.register_parameter = register_parameter
    try:
        yield
    finally:
        nn.Module.register_parameter = plain
