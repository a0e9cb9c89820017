"""Adds a LoRA adapter to a model, and writes it in peft's format.

A checkpoint with an adapter has `adapter_model.safetensors`, `adapter_config.json` and `base/`, a folder of links to
the base model's files, whose checksums are in the manifest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from .errors import GpuWorkerError
from .manifest import ADAPTER_CONFIG, BASE
from .multimodal import Places

ALL_LINEAR = "all-linear"
LINEAR = (nn.Linear, Conv1D)
# vLLM's latent attention computes with parts of this layer's weight that it takes when it loads the model. It would
# serve an adapter without the layer's part, and say nothing.
DIVIDED = "kv_b_proj"
# Before the name of each module in peft's files.
PEFT_PREFIX = "base_model.model."
NAME = "default"
ADAPTER_PARTS = (".lora_A.", ".lora_B.")


@dataclass(frozen=True)
class Lora:
    """`seed` draws the first A; the first B is 0, so that version 0 is the base model."""

    rank: int
    alpha: float
    target_modules: str | list[str]
    # A fork may have another seed; it goes on with its parent's adapter.
    seed: int = field(compare=False)

    @staticmethod
    def from_settings(given: dict[str, Any]) -> Lora | None:
        """Returns None when `given`, settings of a run file, asks for no adapter."""
        if not given.get("lora_rank"):
            return None
        return Lora(given["lora_rank"], float(given["lora_alpha"]), given["target_modules"], given["seed"])

    def config(self) -> LoraConfig:
        return LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=self.target_modules, task_type="CAUSAL_LM")

    def __str__(self) -> str:
        targets = self.target_modules if isinstance(self.target_modules, str) else ", ".join(self.target_modules)
        return f"lora_rank {self.rank}, lora_alpha {self.alpha:g}, target_modules {targets}"


def add_adapter(model: PreTrainedModel, lora: Lora) -> None:
    """Adds the adapter to the linear layers that `target_modules` names, and freezes all other parameters.

    Raises `BadSettings` when a target is none of the model's linear layers, or is one that engines cannot adapt.
    """
    # In a model with a configuration peft takes `gate_proj` and the like for experts, as older transformers had them.
    inside = nn.ModuleDict({"inside": model})
    targets = [f"inside.{name}" for name in _targets(model, lora)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(lora.seed)
        inject_adapter_in_model(replace(lora, target_modules=targets).config(), inside, NAME)
    for parameter in model.parameters():
        if parameter.requires_grad:
            # As the adapter's file has them, so that a run that is read from disk goes on with the same bits.
            parameter.data = parameter.data.to(torch.bfloat16).to(parameter.dtype)


def _targets(model: PreTrainedModel, lora: Lora) -> list[str]:
    """Returns the names of the layers that get an adapter."""
    modules = dict(model.named_modules())
    head = next((name for name, part in modules.items() if part is model.get_output_embeddings()), None)
    linear = [
        name for name, part in modules.items() if isinstance(part, LINEAR) and name != head and _last(name) != DIVIDED
    ]
    if lora.target_modules == ALL_LINEAR:
        return linear
    chosen: list[str] = []
    for target in lora.target_modules:
        found = [name for name in modules if name == target or name.endswith(f".{target}")]
        if not found:
            raise _bad_targets(model, f"name {target!r}, which the model does not have", linear)
        for name in found:
            if name == head:
                raise _bad_targets(model, f"name {name}, the output head, which no adapter can change here", linear)
            if _last(name) == DIVIDED:
                raise _bad_targets(model, f"name {name}, whose adapter vLLM does not apply", linear)
            if name not in linear:
                raise _bad_targets(model, f"name {name}, which is no linear layer", linear)
        chosen += found
    return chosen


def _bad_targets(model: PreTrainedModel, why: str, linear: list[str]) -> GpuWorkerError:
    known = ", ".join(sorted({_last(name) for name in linear}))
    what = f"`target_modules` {why}: a {model.config.model_type} has {known}"
    return GpuWorkerError("BadSettings", f"{what}. Name some of these, or `{ALL_LINEAR}` for all")


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def without_adapter(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the base model's tensors under their own names."""
    return {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in tensors.items()
        if not any(part in name for part in ADAPTER_PARTS)
    }


def peft_name(name: str) -> str:
    """Returns the name that a parameter of an adapter has in peft's files, which vLLM and SGLang read."""
    return PEFT_PREFIX + name.replace(f".{NAME}.weight", ".weight")


def adapter_tensors(
    file: Path, names: Iterable[str], name_in_file: Callable[[str], str] = peft_name
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensor of each parameter in `names`. Raises `CorruptCheckpoint` when the file has other tensors."""
    of_file = {name_in_file(name): name for name in names}
    with safe_open(file, "pt") as adapter:
        if different := sorted(of_file.keys() ^ set(adapter.keys())):
            what = f"adapter {file} and the run's settings differ in {len(different)} tensors, such as {different[0]}"
            how = "resume the run with the release and the settings that made it"
            raise GpuWorkerError("CorruptCheckpoint", f"{what}: {how}")
        for theirs, name in of_file.items():
            yield name, adapter.get_tensor(theirs)


def write_config(lora: Lora, model: PreTrainedModel, base_model: str, folder: Path, place: Places | None) -> None:
    """Writes peft's settings, with which peft, vLLM and SGLang load the adapter.

    Of a mixture with joined experts, peft takes names such as `gate_proj` for those of experts. Where they are linear
    layers (a dense layer, shared experts), it finds them by the names of their weights. In a multimodal model, where
    `place` is, each layer has its full name: towers have layers of the same last names.
    """
    config = lora.config()
    config.base_model_name_or_path = base_model
    config.inference_mode = True
    layers = [name for name, part in model.named_modules() if isinstance(part, LoraLayer)]
    if place is not None:
        config.target_modules = {place.in_whole(name) for name in layers}
    elif not isinstance(lora.target_modules, list):
        config.target_modules = {_last(name) for name in layers}
    names = sorted(config.target_modules)
    mistaken = [name for name in names if _is_taken_for_experts(name, model)]
    config.target_modules = [name for name in names if name not in mistaken]
    config.target_parameters = [f"{name}.weight" for name in mistaken] or None
    config.save_pretrained(str(folder))


def _is_taken_for_experts(name: str, model: PreTrainedModel) -> bool:
    alone = LoraConfig(target_modules=[name])
    try:
        convert_peft_config_for_transformers(alone, model, None)
    except ValueError:
        # It belongs to others that older transformers had beside it.
        return True
    return name not in alone.target_modules


def merge_adapter(model: PreTrainedModel) -> None:
    """Adds the adapter's product to the weights of each layer that has one."""
    for part in model.modules():
        if isinstance(part, LoraLayer):
            part.merge()


def link_base(source: Path, target: Path) -> None:
    """Links the files of the base model that `source` links."""
    target.mkdir()
    for path in sorted(source.iterdir()):
        os.symlink(path.resolve(), target / path.name)


def copy_adapter_files(source: Path, target: Path) -> None:
    """Copies what a checkpoint with an adapter has from the one before: the links to the base, and peft's settings."""
    link_base(source / BASE, target / BASE)
    shutil.copyfile(source / ADAPTER_CONFIG, target / ADAPTER_CONFIG)


def require_same(lora: Lora | None, of_checkpoint: Lora | None) -> None:
    """Raises `BadSettings` when a checkpoint's adapter is not the one that the settings describe."""
    if lora == of_checkpoint:
        return
    found, wanted = (str(each) if each else "no adapter" for each in (of_checkpoint, lora))
    what = f"the version to start from has {found}, and the run file asks for {wanted}"
    how = "set what the version has, or `npx trialgate export` it and name the folder as the `model` of a new run"
    raise GpuWorkerError("BadSettings", f"{what}: {how}")
