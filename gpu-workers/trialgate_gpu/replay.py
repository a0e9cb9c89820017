"""Computes the trainer's state of a checkpoint again, from an earlier checkpoint that has it and the batches since."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from .checkpoint import TrainerState
from .errors import GpuWorkerError
from .group.saved_state import has_state, is_state_pruned
from .group.world import World
from .manifest import Manifest, read_manifest
from .tensor_file import read_tensor, stored_tensors

log = logging.getLogger("trialgate.gpu")
# What other kernels or another number of ranks may change in a weight, as a part of the largest weight of its tensor.
ROUNDING = 0.02


def steps_since_state(folder: Path, manifest: Manifest) -> list[tuple[Path, Manifest]]:
    """Returns the checkpoint to load, and those after it whose steps lead to this one. Version 0 needs no state.

    Raises `MissingCheckpoint` when one of them is not there, and `MissingTrainerState` when the state was pruned.
    """
    found = [(folder, manifest)]
    while not has_state(folder) and manifest.replay is not None:
        if is_state_pruned(folder):
            raise _pruned(manifest, wanted=found[0][1])
        folder = folder.parent / manifest.replay["parent"]
        manifest = read_manifest(folder)
        found.append((folder, manifest))
    return found[::-1]


def _pruned(manifest: Manifest, wanted: Manifest) -> GpuWorkerError:
    name = f"{wanted.run_id}@{wanted.version}"
    what = f"a step from {name} needs the trainer's state of version {manifest.version}, which was pruned"
    how = f"export it (`npx trialgate export {name} FOLDER`) and name the folder as the `model` of a new run"
    return GpuWorkerError(
        "MissingTrainerState",
        f"{what} (`keep_trainer_state: newest`): {how}, which begins with these weights and a new optimizer",
    )


def require_same_weights(
    state: TrainerState, folder: Path, manifest: Manifest, made_by: dict[str, Any], world: World
) -> None:
    """Compares the weights of a replayed step with those that were written when it was first done.

    Raises `ReplayDiffers` unless they are the same bits. A step that was first done elsewhere, as by another number of
    ranks, may differ by rounding.
    """
    stored = stored_tensors(folder)
    largest = 0.0
    for chunk in state.policy.weight_chunks():
        for name in chunk.keys() & stored.keys() if world.rank == 0 else ():
            before, after = read_tensor(stored[name], name), chunk[name].cpu()
            if not torch.equal(before, after):
                difference = (before.float() - after.float()).abs().max() / before.float().abs().max()
                largest = max(largest, float(difference))
    largest = world.of_first(largest)
    is_same_place = manifest.made_by == made_by
    if largest > (0.0 if is_same_place else ROUNDING):
        what = f"the step to version {manifest.version}, done again, gives other weights than those in {folder}"
        how = "redo the iteration, or begin a fork from a version whose trainer state was written"
        raise GpuWorkerError("ReplayDiffers", f"{what} (by {largest:.2g} of the largest in a tensor): {how}")
    if largest:
        log.warning(
            "the step to version %d, done again on %s instead of %s, differs by rounding: %.2g of the largest weight",
            manifest.version,
            made_by,
            manifest.made_by,
            largest,
        )
