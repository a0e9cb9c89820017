"""Writes and reads the manifest of a checkpoint folder, and computes the checksums that identify it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import GpuWorkerError

MANIFEST = "manifest.json"


def canonical_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()


@dataclass(frozen=True)
class Manifest:
    """`files` has the sha256 by relative path. `parent` is the parent's checkpoint_sha256, or null for version 0.

    `checkpoint_sha256` covers everything that the next step depends on (weights and trainer state); `weights_sha256`
    covers only what an engine loads. `skipped` says why the step made no update; `skipped_in_a_row` counts this step
    and the skipped ones right before it.
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


def state_digests(files: dict[str, str]) -> tuple[str, str]:
    """Returns (checkpoint_sha256, weights_sha256) from the checksums of the files."""
    tensors = {path: sha for path, sha in files.items() if path.endswith((".safetensors", ".bin"))}
    return digest(tensors), digest({path: sha for path, sha in tensors.items() if "/" not in path})
