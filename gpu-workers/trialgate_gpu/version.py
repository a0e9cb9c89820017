"""What every backend writes of a version: whether its step was skipped, its metrics and its manifest."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

from .canary import Canary
from .errors import GpuWorkerError, NotFiniteError
from .lora import Lora, require_same
from .manifest import Manifest, find_manifest, weights_digest
from .progress import Progress
from .settings import TrainerSettings

log = logging.getLogger("trialgate.gpu")


class Skip(NamedTuple):
    """Why a step made no update, and how many steps in a row made none; `Skip()` for a step that was not skipped."""

    reason: str | None = None
    in_a_row: int = 0


SKIPPED_METRICS = {"actor/updates": 0, "actor/skipped": 1}


def skip(error: NotFiniteError, request: dict[str, Any], settings: TrainerSettings, parent: Manifest) -> Skip:
    """Raises `GpuWorkerError` when too many steps in a row were skipped."""
    skipped = Skip(str(error), parent.skipped_in_a_row + 1)
    if skipped.in_a_row > settings.max_skipped_steps:
        raise too_many_skipped(str(error), parent.skipped_in_a_row) from None
    log.warning("the step to version %s is skipped: %s", request["version"], error)
    return skipped


def too_many_skipped(reason: str, before: int) -> GpuWorkerError:
    what = f"the step made no update because {reason}"
    if before:
        what += f", and neither did the {before} before it"
    how = "check these trials and the training settings, then redo the iteration or raise `max_skipped_steps`"
    return GpuWorkerError("StepsSkipped", f"{what}: {how}, and resume the run")


def step_metrics(
    metrics: dict[str, float], settings: TrainerSettings, progress: Progress, started: float
) -> dict[str, float]:
    """Returns the metrics of a step with those that every backend has. `started` is by `time.perf_counter`."""
    metrics = metrics | {"actor/lr": settings.optim.lr, "timing_s/step": time.perf_counter() - started}
    metrics |= {f"timing_s/{part}": seconds for part, seconds in progress.seconds.items()}
    return {name: rounded(value) for name, value in metrics.items() if math.isfinite(value)}


def rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")


def step_manifest(
    request: dict[str, Any],
    parent: Manifest,
    skipped: Skip,
    canary: Canary,
    metrics: dict[str, float],
    **of_backend: Any,
) -> Manifest:
    """Returns the manifest of a step's version. `of_backend` has the other fields of `Manifest`."""
    return Manifest(
        run_id=request["run_id"],
        version=request["version"],
        parent=parent.checkpoint_sha256,
        batch_sha256=request["batch_sha256"],
        metrics=metrics,
        canary=canary.to_json(),
        skipped=skipped.reason,
        skipped_in_a_row=skipped.in_a_row,
        lora=parent.lora,
        **of_backend,
    )


def base_manifest(
    run_id: str, key: str, files: dict[str, str], checkpoint_sha256: str, canary: dict[str, Any], **of_backend: Any
) -> Manifest:
    """Returns the manifest of a version 0, which no step made."""
    return Manifest(
        run_id=run_id,
        version=0,
        key=key,
        parent=None,
        batch_sha256=None,
        files=files,
        checkpoint_sha256=checkpoint_sha256,
        weights_sha256=weights_digest(files),
        optimizer_steps=0,
        metrics={},
        canary=canary,
        **of_backend,
    )


def find_fork(model: Path, run_id: str, lora: Lora | None) -> Manifest | None:
    """Returns the manifest of a model that already is a checkpoint of the run, as in a fork.

    Raises `GpuWorkerError` when it has another adapter than `lora`.
    """
    fork = find_manifest(model)
    if fork is None or fork.run_id != run_id:
        return None
    require_same(lora, Lora(**fork.lora) if fork.lora else None)
    return fork


def step_result(folder: Path, manifest: Manifest, *, reused: bool) -> dict[str, Any]:
    given = base_result(folder, manifest)
    return given | {"step_key": manifest.key, "skipped": manifest.skipped, "reused": reused}


def base_result(folder: Path, manifest: Manifest) -> dict[str, Any]:
    return {
        "checkpoint": str(folder),
        "checkpoint_sha256": manifest.checkpoint_sha256,
        "canary": manifest.canary,
        "metrics": manifest.metrics,
    }
