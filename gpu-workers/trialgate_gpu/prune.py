"""Removes what no setting keeps: checkpoints, and the trainer's state of checkpoints that stay."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from .errors import GpuWorkerError
from .group.saved_state import has_state, is_state_pruned, prune_state
from .manifest import MANIFEST, Manifest, read_manifest

log = logging.getLogger("trialgate.gpu")

Manifests = Mapping[Path, Manifest]


def prune(home: Path, run_id: str, keep: int, interval: int | None, kept: Collection[Path]) -> list[Path]:
    """Deletes the run's checkpoints, but not `kept`, the newest `keep` and those of versions that `interval` divides.

    Version 0 has only links and stays. A checkpoint from which one that stays must be computed again stays too,
    whatever run that belongs to.
    """
    # A kept path may be a link to a checkpoint.
    untouchable = {*kept, *(path.resolve() for path in kept)}
    manifests = _read_manifests(home)
    linked = _linked(run_id, manifests)
    of_run = [(m.version, folder) for folder, m in manifests.items() if m.run_id == run_id and folder not in linked]
    own = sorted(((version, folder) for version, folder in of_run if version > 0), reverse=True)
    older = own[keep:] if interval is None else [each for each in own[keep:] if each[0] % interval]
    doomed = [folder for _, folder in older if folder not in untouchable]
    # They serve only to compute the state of version 0.
    doomed += sorted(linked) if any(is_state_pruned(folder) for version, folder in of_run if version == 0) else []
    needed = {each for folder in manifests.keys() - set(doomed) for each in replayed_from(folder, manifests)}
    doomed = [folder for folder in doomed if folder not in needed]
    for folder in doomed:
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return doomed


def prune_states(home: Path, run_id: str, parent: Path) -> None:
    """Prunes the trainer's state of all versions of the run that are older than what a step from `parent` needs.

    That is the state of `parent`, which is on the disk then, or the one from which it is computed again. `redo` of the
    iteration under way begins from `parent` too, and after this step `redo` needs nothing older.
    """
    manifests = _read_manifests(home)
    folder = home / "checkpoints" / parent.resolve().name
    *_, oldest = folder, *replayed_from(folder, manifests)
    linked = _linked(run_id, manifests)
    if not has_state(oldest) or oldest in linked or oldest not in manifests or manifests[oldest].run_id != run_id:
        return
    # Version 0 of a model needs no state. That of a fork has one, or is computed again from the linked checkpoints.
    of_run = [(m.version, each) for each, m in manifests.items() if m.run_id == run_id and m.replay]
    # A version is pruned before those from which its state would be computed, so that each one left can be computed.
    for version, each in sorted(of_run, reverse=True):
        if version < manifests[oldest].version and each not in linked:
            try:
                prune_state(each)
            except OSError as error:
                log.warning("the trainer's state of %s cannot be removed: %s", each, error)


def replayed_from(folder: Path, manifests: Manifests) -> list[Path]:
    """Returns the checkpoints from which this one's trainer state is computed again, the nearest first.

    There are none when its state is written, or was pruned.
    """
    found: list[Path] = []
    while folder in manifests and not has_state(folder) and not is_state_pruned(folder):
        if not (replay := manifests[folder].replay):
            break
        folder = folder.parent / replay["parent"]
        found.append(folder)
    return found


def _read_manifests(home: Path) -> Manifests:
    manifests: dict[Path, Manifest] = {}
    for path in (home / "checkpoints").glob(f"[!.]*/{MANIFEST}"):
        with contextlib.suppress(GpuWorkerError):
            manifests[path.parent] = read_manifest(path.parent)
    return manifests


def _linked(run_id: str, manifests: Manifests) -> set[Path]:
    """Returns the checkpoints from which a fork's version 0 is computed again, also when that is not needed any more.

    These are links to the first run's checkpoints, with their versions there.
    """
    found: set[Path] = set()
    for folder, manifest in manifests.items():
        while manifest.run_id == run_id and manifest.replay and (manifest.version == 0 or folder in found):
            folder = folder.parent / manifest.replay["parent"]
            if folder not in manifests or manifests[folder].run_id != run_id:
                break
            manifest = manifests[folder]
            found.add(folder)
    return found
