"""Runs one train step: from a batch and a parent checkpoint to the next checkpoint.

A step has a key, so that a repeated step finds the finished checkpoint (invariant 7).
"""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

import torch

from .batch import read_batch
from .canary import Canary, measure_canary
from .checkpoint import (
    TrainerState,
    checkpoint_folder,
    copy_side_files,
    draft_folder,
    load_state,
    prune,
    state_bytes,
    write_state,
)
from .errors import GpuWorkerError, NotFiniteError
from .manifest import MANIFEST, Manifest, digest, read_manifest, state_digests
from .optimize import optimize
from .prepare import prepare
from .progress import Progress
from .settings import TrainerSettings, parse_settings

log = logging.getLogger("trialgate.gpu")


def step_key(parent_sha256: str, batch_sha256: str, settings: TrainerSettings) -> str:
    return digest({"parent": parent_sha256, "batch": batch_sha256, "trainer": settings.identity()})


class Trainer:
    """Keeps the newest state in memory. Another parent is loaded from disk, with bit-equal results."""

    def __init__(self, device: torch.device, pack_tokens: int) -> None:
        self.device = device
        self.pack_tokens = pack_tokens
        self._state: TrainerState | None = None
        self._state_sha256: str | None = None

    def state_of(self, folder: Path, manifest: Manifest, progress: Progress) -> TrainerState:
        """Returns the trainer state of this checkpoint, from memory or from disk."""
        if self._state is None or self._state_sha256 != manifest.checkpoint_sha256:
            progress.show("load checkpoint", version=manifest.version)
            self.forget()
            with progress.timed("load_checkpoint"):
                self._state = load_state(folder, manifest, self.device, progress.check)
            self._state_sha256 = manifest.checkpoint_sha256
        return self._state

    def forget(self) -> None:
        self._state = self._state_sha256 = None

    def train_step(self, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Makes version `version` from `parent_checkpoint`.

        `request` has `run_id`, `version`, `parent_checkpoint` (a folder), `batch_path`, `batch_sha256`, `home` (the
        folder of the deployment) and `trainer` (the settings of `settings.py`). It may have `best_checkpoint`, a folder
        that is not pruned. The result has `step_key`, `checkpoint` (a folder), `checkpoint_sha256`, `canary`,
        `metrics`, `skipped` (why the step made no update, or null) and `reused` (true when an earlier try had finished
        the step). `core/gpu-contract.ts` has both as types.

        Raises `GpuWorkerError`, or `Cancelled` with nothing changed.
        """
        started = time.perf_counter()
        home, parent_folder = Path(request["home"]), Path(request["parent_checkpoint"])
        settings = parse_settings(request["trainer"])
        parent = read_manifest(parent_folder)
        key = step_key(parent.checkpoint_sha256, request["batch_sha256"], settings)
        folder = checkpoint_folder(home, key)
        if (folder / MANIFEST).is_file():
            return _result(folder, read_manifest(folder), reused=True)
        state = self.state_of(parent_folder, parent, progress)
        state.policy.head_dtype = settings.head_dtype
        with draft_folder(folder, state_bytes(state.policy)) as draft:
            try:
                metrics, canary = self._update(state, request, settings, parent, key, progress)
                skipped, skipped_in_a_row = None, 0
            except NotFiniteError as error:
                skipped, skipped_in_a_row = str(error), parent.skipped_in_a_row + 1
                if skipped_in_a_row > settings.max_skipped_steps:
                    raise _too_many_skipped(skipped, parent.skipped_in_a_row) from None
                log.warning("the step to version %s is skipped: %s", request["version"], skipped)
                metrics, canary = {"actor/updates": 0, "actor/skipped": 1}, Canary.from_json(parent.canary)
                del state
                state = self.state_of(parent_folder, parent, progress)
            progress.show("write checkpoint")
            with progress.timed("write_checkpoint"):
                copy_side_files(parent_folder, draft)
                files = write_state(state, parent_folder, draft, progress.check)
            checkpoint_sha256, weights_sha256 = state_digests(files)
            if metrics["actor/updates"] == 0:
                # The base model's file may have the same tensors in another order, with another checksum.
                weights_sha256 = parent.weights_sha256
            metrics["actor/lr"] = settings.optim.lr
            metrics["seconds/total"] = time.perf_counter() - started
            metrics |= {f"seconds/{part}": seconds for part, seconds in progress.seconds.items()}
            manifest = Manifest(
                run_id=request["run_id"],
                version=request["version"],
                key=key,
                parent=parent.checkpoint_sha256,
                batch_sha256=request["batch_sha256"],
                files=files,
                checkpoint_sha256=checkpoint_sha256,
                weights_sha256=weights_sha256,
                optimizer_steps=state.optimizer.steps,
                metrics={name: _rounded(value) for name, value in metrics.items() if math.isfinite(value)},
                canary=canary.to_json(),
                skipped=skipped,
                skipped_in_a_row=skipped_in_a_row,
            )
            manifest.write(draft)
        self._state_sha256 = checkpoint_sha256
        kept = [folder, parent_folder, Path(request.get("best_checkpoint") or folder)]
        prune(home, manifest.run_id, settings.keep_checkpoints, {*kept, *(path.resolve() for path in kept)})
        return _result(folder, manifest, reused=False)

    def _update(
        self,
        state: TrainerState,
        request: dict[str, Any],
        settings: TrainerSettings,
        parent: Manifest,
        key: str,
        progress: Progress,
    ) -> tuple[dict[str, float], Canary]:
        """Trains `state` on the batch. Returns the step's metrics and the new weights' canary.

        Raises `NotFiniteError` when a number is not finite; `state` must then be loaded again.
        """
        progress.show("read batch")
        with progress.timed("load_batch"):
            samples = read_batch(Path(request["batch_path"]), request["batch_sha256"], parent.version)
            prepared = prepare(samples, settings, parent.version)
        self._state_sha256 = None
        seed = int(key[:15], 16)
        metrics = prepared.metrics | optimize(state, prepared, settings, self.pack_tokens, seed, progress)
        progress.show("canary")
        with progress.timed("canary"):
            return metrics, measure_canary(state.policy, parent.canary["token_ids"])


def _too_many_skipped(reason: str, before: int) -> GpuWorkerError:
    what = f"the step made no update because {reason}"
    if before:
        what += f", and neither did the {before} before it"
    how = "check these trials and the training settings, then redo the iteration or raise `max_skipped_steps`"
    return GpuWorkerError("StepsSkipped", f"{what}: {how}, and resume the run")


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _result(folder: Path, manifest: Manifest, *, reused: bool) -> dict[str, Any]:
    return {
        "step_key": manifest.key,
        "checkpoint": str(folder),
        "checkpoint_sha256": manifest.checkpoint_sha256,
        "canary": manifest.canary,
        "metrics": manifest.metrics,
        "skipped": manifest.skipped,
        "reused": reused,
    }
