"""Writes and reads the trainer's state, which is more than an engine needs: master weights and AdamW's moments.

A checkpoint is complete without it, because a step can be computed again from its batch (`replay.py`). So it is written
by PyTorch's distributed checkpoint while the next step runs, and appears in the checkpoint by one rename: a folder
`trainer` with a file a rank and `state.json`, which has the digest of each. Any number of ranks can read it.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor

from ..durable import sync, sync_tree
from ..errors import GpuWorkerError
from ..optimizer import FlatAdamW
from ..policy import Policy
from ..tensor_file import sha256_of
from .sharded_adamw import ShardedAdamW
from .sharded_policy import ShardedPolicy
from .world import World

FOLDER, INFO = "trainer", "state.json"
# Says that a checkpoint has its trainer's state no longer (`activities/run/link-checkpoint.ts` reads it too).
PRUNED = "pruned"
log = logging.getLogger("trialgate.gpu")

Tensors = dict[str, torch.Tensor]
Optimizer = FlatAdamW | ShardedAdamW


def has_state(checkpoint: Path) -> bool:
    return (checkpoint / FOLDER / INFO).is_file() and not is_state_pruned(checkpoint)


def is_state_pruned(checkpoint: Path) -> bool:
    return (checkpoint / FOLDER / PRUNED).exists()


def prune_state(checkpoint: Path) -> None:
    """Removes the trainer's state of a checkpoint, or says of one without it that it is not computed again.

    The state is marked first, so that nobody reads one that is removed in part. Repeating it removes the rest.
    """
    folder = checkpoint / FOLDER
    if not is_state_pruned(checkpoint):
        folder.mkdir(exist_ok=True)
        (folder / PRUNED).touch()
        sync(folder)
        sync(checkpoint)
    for path in folder.iterdir():
        if path.name != PRUNED:
            path.unlink()


def _parts(policy: Policy, values: Any) -> Tensors:
    """Returns values that are laid out like the master weights, as tensors that know their place in the whole."""
    if not isinstance(policy, ShardedPolicy):
        return policy._views(values)
    return {
        name: DTensor.from_local(
            values[name],
            each.device_mesh,
            each.placements,
            run_check=False,
            shape=each.shape,
            stride=each.stride(),
        )
        for name, each in policy.parameters.items()
    }


def _empty(policy: Policy) -> Any:
    if isinstance(policy, ShardedPolicy):
        return {name: torch.zeros_like(part) for name, part in policy.master.items()}
    return torch.zeros_like(policy.master)


class StateWriter:
    """Writes one state at a time. A failure is logged: the checkpoint is then one to replay."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._writing: threading.Thread | None = None

    def begin(self, policy: Policy, optimizer: Optimizer, checkpoint: Path, sha256: str, draft: Path) -> None:
        """Copies the state into main memory, and writes it into `checkpoint` by way of `draft` while others go on."""
        self.settle()
        state = {"master": _parts(policy, policy.master)}
        for name, moment in zip(("exp_avg", "exp_avg_sq"), optimizer.moments() or (), strict=False):
            state[name] = _parts(policy, moment)
        draft = Path(self.world.of_first(str(draft)))
        saving = dcp.async_save(
            state,
            storage_writer=dcp.FileSystemWriter(draft, sync_files=True),
            process_group=self.world.saving,
            no_dist=self.world.saving is None,
        )
        info = {"checkpoint_sha256": sha256, "steps": optimizer.steps, "ranks": self.world.size}
        self._writing = threading.Thread(target=self._finish, args=(saving, checkpoint, draft, info), daemon=True)
        self._writing.start()

    def _finish(self, saving: Any, checkpoint: Path, draft: Path, info: dict[str, Any]) -> None:
        own: dict[str, str] | None = None
        try:
            saving.result()
            own = self._digests(draft)
        except Exception as error:
            _log_failure(checkpoint, error)
        try:
            # A rank that has failed takes part, because the others wait for it.
            found = [own]
            if self.world.size > 1:
                found = [None] * self.world.size
                dist.all_gather_object(found, own, group=self.world.saving)
            if self.world.rank == 0 and None not in found:
                files = {name: sha for each in found for name, sha in (each or {}).items()}
                (draft / INFO).write_text(json.dumps(info | {"files": files}, indent=1) + "\n")
                sync_tree(draft)
                draft.rename(checkpoint / FOLDER)
                sync(checkpoint)
        except Exception as error:
            _log_failure(checkpoint, error)
        if self.world.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)

    def _digests(self, draft: Path) -> dict[str, str]:
        rank = self.world.rank
        own = {path.name: sha256_of(path) for path in sorted(draft.glob(f"__{rank}_*"))}
        return own | ({".metadata": sha256_of(draft / ".metadata")} if rank == 0 else {})

    def settle(self) -> None:
        """Waits until the state that is being written is there."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None


def _log_failure(checkpoint: Path, error: Exception) -> None:
    # The controller shows only the first line of what a rank logs.
    cause = traceback.format_exception_only(error)[-1].strip().splitlines()[-1]
    what = "the trainer's state of %s was not written (%s): it will be computed again if needed"
    log.error(what, checkpoint, cause, exc_info=error)


def restore(
    policy: Policy, optimizer: Optimizer, checkpoint: Path, sha256: str, world: World, check: Callable[[], None]
) -> None:
    """Reads the state of a checkpoint into `policy` and `optimizer`, each rank its part.

    Raises `CorruptCheckpoint` when it is another checkpoint's or cut off, or a file does not have its digest.
    """
    folder = checkpoint / FOLDER
    steps = world.together(lambda: _check_files(folder, sha256, world, check))
    state = {"master": _parts(policy, policy.master)}
    moments: list[Any] = []
    if steps:
        moments = [_empty(policy), _empty(policy)]
        state |= {name: _parts(policy, each) for name, each in zip(("exp_avg", "exp_avg_sq"), moments, strict=True)}
    try:
        reader = dcp.FileSystemReader(folder)
        dcp.load(state, storage_reader=reader, process_group=world.saving, no_dist=world.saving is None)
    except (dcp.CheckpointException, RuntimeError, ValueError, KeyError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise _corrupt(f"the trainer's state in {folder} is not of this model ({first})", folder) from error
    if moments:
        optimizer.restore(steps, *moments)
    policy.refresh()


def _check_files(folder: Path, sha256: str, world: World, check: Callable[[], None]) -> int:
    """Checks this rank's share of the files, and returns the number of steps that the state has behind it."""
    try:
        info = json.loads((folder / INFO).read_text())
        of_checkpoint, files, steps = info["checkpoint_sha256"], info["files"], info["steps"]
    except (ValueError, KeyError) as error:
        raise _corrupt(f"{folder / INFO} cannot be read ({type(error).__name__}: {error})", folder) from error
    if of_checkpoint != sha256:
        raise _corrupt(f"the trainer's state in {folder} is of another checkpoint", folder)
    for name, sha in sorted(files.items())[world.rank :: world.size]:
        check()
        if not (folder / name).is_file() or sha256_of(folder / name) != sha:
            raise _corrupt(f"checkpoint file {folder / name} does not have the sha256 of its {INFO}", folder)
    return steps


def _corrupt(what: str, folder: Path) -> GpuWorkerError:
    how = f"delete {folder}: the state is then computed again from the checkpoint before, if that one has its own"
    return GpuWorkerError("CorruptCheckpoint", f"{what}; {how}")
