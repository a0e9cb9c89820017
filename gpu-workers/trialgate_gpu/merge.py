"""Writes a checkpoint's adapter and its base as one model: python -m trialgate_gpu.merge CHECKPOINT FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from .checkpoint import copy_side_files, write_model
from .errors import GpuWorkerError
from .group.world import World
from .lora import Lora, merge_adapter
from .manifest import ADAPTER, BASE, read_manifest
from .policy import Policy


def merge(checkpoint: Path, folder: Path) -> None:
    """Fills `folder` with the model. The sum is made in float32 and rounded once, to bfloat16."""
    manifest = read_manifest(checkpoint)
    if manifest.lora is None:
        raise GpuWorkerError("BadRequest", f"checkpoint {checkpoint} has no adapter: it is a whole model already")
    policy = Policy(checkpoint / BASE, torch.device("cpu"), torch.float32, Lora(**manifest.lora))
    policy.read_adapter(checkpoint / ADAPTER)
    merge_adapter(policy.model)
    # Buffers keep their dtype.
    for parameter in policy.model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    copy_side_files(checkpoint / BASE, folder)
    write_model(policy.model_chunks(), checkpoint / BASE, folder, lambda: None, World())


if __name__ == "__main__":
    try:
        merge(Path(sys.argv[1]), Path(sys.argv[2]))
    except GpuWorkerError as error:
        sys.exit(str(error))
