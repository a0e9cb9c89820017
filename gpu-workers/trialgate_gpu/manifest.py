"""Writes and reads the manifest of a checkpoint folder, and computes the checksums that identify it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .errors import GpuWorkerError

MANIFEST = "manifest.json"
# The files of an adapter, and the folder of its base model, in a checkpoint that has one.
ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
BASE = "base"


def canonical_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()


@dataclass(frozen=True)
class Manifest:
    """`files` has the sha256 by relative path. `parent` is the parent's checkpoint_sha256, or null for version 0.

    `lora` describes the adapter of a checkpoint that has one (see lora.py); `files` then has the base model's files
    too, under `base/`. `checkpoint_sha256` stands for everything that the next step depends on (weights and trainer
    state): version 0 has that of its files and of its adapter's settings, a step that of its weights and its key.
    `weights_sha256` covers only what an engine loads. `skipped` says why the step made no update; `skipped_in_a_row`
    counts this step and the skipped ones right before it. `replay` has what computes the step again: the name of the
    parent's folder, batch and settings; null for version 0. `since_state` counts the steps since the last one whose
    trainer state is written; `made_by` says on what the step was computed. `trainer_server` says where a server has
    this version (`backends/tinker/`).
    """

    run_id: str
    version: int
    key: str
    parent: str | None
    batch_sha256: str | None
    files: dict[str, str]
    checkpoint_sha256: str
    weights_sha256: str
    optimizer_steps: int
    metrics: dict[str, float]
    canary: dict[str, Any]
    skipped: str | None = None
    skipped_in_a_row: int = 0
    lora: dict[str, Any] | None = None
    trainer_server: dict[str, Any] | None = None
    replay: dict[str, Any] | None = None
    since_state: int = 0
    made_by: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=1, allow_nan=False) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Reads a manifest. Raises `MissingCheckpoint` when the folder is not a finished checkpoint."""
    try:
        return Manifest(**json.loads((folder / MANIFEST).read_text()))
    except FileNotFoundError as error:
        what = f"checkpoint {folder} is not there: it was deleted, or TRIALGATE_HOME is not the one that made it"
        raise GpuWorkerError("MissingCheckpoint", what) from error
    except (OSError, ValueError, TypeError) as error:
        raise GpuWorkerError(
            "MissingCheckpoint", f"checkpoint {folder} has an unreadable {MANIFEST}: {error}"
        ) from error


def find_manifest(folder: Path) -> Manifest | None:
    """Returns the manifest of a finished checkpoint, or None when there is none."""
    return read_manifest(folder) if (folder / MANIFEST).is_file() else None


def tensors_digest(files: dict[str, str]) -> str:
    """Returns the digest of all tensors, those of an adapter's base too, from the checksums of the files."""
    return digest({path: sha for path, sha in files.items() if path.endswith((".safetensors", ".bin"))})


def weights_digest(files: dict[str, str]) -> str:
    """Returns the digest of what an engine loads for this version: without the base that adapters share."""
    return tensors_digest({path: sha for path, sha in files.items() if "/" not in path})


def base_digest(files: dict[str, str], config: str, lora: dict[str, Any] | None) -> str:
    """Returns the checkpoint_sha256 of a version 0. The same weights with another config are another policy.

    So is the same first adapter with another alpha. What the seed draws is in the tensors.
    """
    of_lora = {} if lora is None else {"lora": {key: lora[key] for key in lora.keys() - {"seed"}}}
    return digest({"tensors": tensors_digest(files), "config": config} | of_lora)
