"""Unpacks the adapter that a server hands out, in peft's format."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ...errors import GpuWorkerError, NotFiniteError
from ...lora import Lora
from ...manifest import ADAPTER, ADAPTER_CONFIG
from ...tensor_file import sha256_of

PREFIXES = (".lora_A.", ".lora_B.")


def unpack_adapter(archive: Path, folder: Path, lora: Lora, base_model: str) -> str:
    """Writes the archive's adapter and its configuration into `folder`; returns the sha256 of the adapter.

    Unpacks beside the archive, so that `folder` stays as it was when this raises: `BadSettings` when it is not the
    adapter that the settings ask for, `NotFiniteError` when a weight is NaN.
    """
    unpacked = archive.parent
    _extract(archive, unpacked)
    tensors = load_file(unpacked / ADAPTER)
    config = json.loads((unpacked / ADAPTER_CONFIG).read_text())
    _require_same(config, lora)
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise NotFiniteError(f"weight {name} of the trainer server's adapter is not finite")
    layers = {name.split(part)[0] for name in tensors for part in PREFIXES if part in name}
    config |= {
        "base_model_name_or_path": base_model,
        "inference_mode": True,
        "target_modules": sorted({layer.rsplit(".", 1)[-1] for layer in layers}),
        "task_type": "CAUSAL_LM",
    }
    (unpacked / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name in (ADAPTER, ADAPTER_CONFIG):
        (unpacked / name).replace(folder / name)
    return sha256_of(folder / ADAPTER)


def _extract(archive: Path, folder: Path) -> None:
    """Takes the two files from the archive by their names, whatever folder they are in, and nothing else."""
    try:
        with tarfile.open(archive) as packed:
            found = {Path(member.name).name: member for member in packed if member.isfile()}
            for name in (ADAPTER, ADAPTER_CONFIG):
                content = packed.extractfile(found[name])
                assert content is not None
                (folder / name).write_bytes(content.read())
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise GpuWorkerError(
            "TrainerServerFailed",
            f"the trainer server's archive has no adapter in peft's format ({error}): the step begins again",
            retryable=True,
        ) from error


def _require_same(config: dict[str, Any], lora: Lora) -> None:
    for name, found, wanted in (("rank", config["r"], lora.rank), ("alpha", config["lora_alpha"], lora.alpha)):
        if float(found) != float(wanted):
            what = f"the trainer server trains an adapter with {name} {found:g}, and the run file asks for {wanted:g}"
            raise GpuWorkerError("BadSettings", f"{what}: set `lora_{name}: {found:g}`")
