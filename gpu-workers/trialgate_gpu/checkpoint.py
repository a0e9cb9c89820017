"""Writes and reads checkpoints: folders that vLLM loads, written as a temporary folder and put in place by one rename.

`HOME/checkpoints/{key[:32]}/` has `model.safetensors` (bfloat16, with the tensors of the base model's files), config,
tokenizer and chat template, `trainer/*.safetensors` (float32 master weights and AdamW moments, flat, in the order of
the names in their metadata) and `manifest.json`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from .errors import GpuWorkerError
from .manifest import MANIFEST, Manifest, read_manifest
from .optimizer import FlatAdamW
from .policy import Policy
from .tensor_file import Tensors, as_written, read_flat, read_tensor, sha256_of, stored_tensors, write_tensors

TEMPORARY = ".tmp-"
TENSOR_ENDINGS = (".safetensors", ".bin", ".pt", ".gguf", ".safetensors.index.json", ".bin.index.json")
WEIGHTS = "model.safetensors"
STATE_FILES = ("master", "exp_avg", "exp_avg_sq")
SPARE_BYTES = 64 * 1024 * 1024


@dataclass
class TrainerState:
    policy: Policy
    optimizer: FlatAdamW


def checkpoint_folder(home: Path, key: str) -> Path:
    return home / "checkpoints" / key[:32]


@contextmanager
def draft_folder(target: Path, needed_bytes: int) -> Iterator[Path]:
    """Yields a temporary folder that becomes `target` when the block succeeds and is removed when it fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    # `activities/run/link-checkpoint.ts` gives its drafts the same form, so that `remove_leftovers` finds them too.
    draft = target.parent / f"{TEMPORARY}{target.name}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        if shutil.disk_usage(target.parent).free < needed_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        draft.mkdir()
        yield draft
        _sync_tree(draft)
        _rename(draft, target)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(target.parent).free
        what = f"disk full: {target.parent} has {free >> 20} MiB free and a checkpoint needs {needed_bytes >> 20} MiB"
        raise GpuWorkerError(
            "DiskFull", f"{what}; earlier checkpoints are intact: make room, then resume the run"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _rename(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (target / MANIFEST).is_file():
            raise
    _fsync(target.parent)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink():
            _fsync(path)
    _fsync(folder)


def remove_leftovers(checkpoints: Path) -> None:
    """Deletes temporary folders of processes of this host that have ended."""
    for draft in checkpoints.glob(f"{TEMPORARY}*"):
        host, pid = draft.name.removeprefix(TEMPORARY).split("-", 1)[1].rsplit("-", 2)[:2]
        if host == socket.gethostname() and not _alive(int(pid)):
            shutil.rmtree(draft, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def copy_side_files(source: Path, target: Path) -> None:
    """Copies config, tokenizer and chat template, and sets bfloat16 in the config, which is the weights' dtype."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name != MANIFEST and not path.name.endswith(TENSOR_ENDINGS):
            shutil.copyfile(path, target / path.name)
    config = json.loads((target / "config.json").read_text())
    config.pop("torch_dtype", None)
    config["dtype"] = "bfloat16"
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def require_complete(policy: Policy, parent: Path) -> None:
    """Raises `BadModel` when a weight is not in `parent`'s files: transformers then filled it with random numbers."""
    if lost := sorted(set(policy.weights()) - set(stored_tensors(parent)) - policy.tied_names()):
        what = f"the files of model {parent} have no tensor {lost[0]!r}, which its configuration asks for"
        raise GpuWorkerError("BadModel", f"{what}: they are cut short, or of another model")


def engine_tensors(policy: Policy, parent: Path) -> Tensors:
    """Returns the tensors that an engine loads: those of `parent`, by the same names.

    Tensors that transformers does not load, such as those of layers for speculative decoding, are copied from `parent`.
    """
    own = policy.weights()
    return {
        name: as_written(own[name] if name in own else read_tensor(path, name))
        for name, path in stored_tensors(parent).items()
    }


def write_state(state: TrainerState, parent: Path, folder: Path, check: Callable[[], None]) -> dict[str, str]:
    """Writes weights and trainer state into `folder`, two files at a time. Returns the sha256 by relative path."""
    policy, optimizer = state.policy, state.optimizer
    flat = dict(zip(STATE_FILES, (policy.master, *(optimizer.moments() or ())), strict=False))
    metadata = {"names": json.dumps(policy.names), "steps": str(optimizer.steps)}
    (folder / "trainer").mkdir()
    with ThreadPoolExecutor(2) as pool:
        weights = engine_tensors(policy, parent)
        jobs = {WEIGHTS: pool.submit(write_tensors, folder / WEIGHTS, weights, {"format": "pt"}, check)}
        for name, tensor in flat.items():
            file = f"trainer/{name}.safetensors"
            content = {name: ("F32", (tensor.numel(),), tensor.cpu().numpy())}
            jobs[file] = pool.submit(write_tensors, folder / file, content, metadata, check)
        return {file: job.result() for file, job in jobs.items()}


def state_bytes(policy: Policy) -> int:
    return policy.master.numel() * (2 + 3 * 4) + SPARE_BYTES


def load_state(folder: Path, manifest: Manifest, device: torch.device, check: Callable[[], None]) -> TrainerState:
    """Loads a checkpoint and checks its files against the checksums of its manifest.

    Raises `MissingCheckpoint` or `CorruptCheckpoint` when they differ.
    """
    for file, sha in manifest.files.items():
        check()
        if not (folder / file).exists():
            raise GpuWorkerError(
                "MissingCheckpoint", f"checkpoint {folder} lacks {file}: restore it or redo the iteration"
            )
        if sha256_of(folder / file) != sha:
            what = f"checkpoint file {folder / file} does not have the sha256 of its manifest"
            raise GpuWorkerError("CorruptCheckpoint", f"{what}: delete {folder} and redo the iteration that made it")
    policy = Policy(folder, device)
    if (folder / "trainer/master.safetensors").is_file():
        check()
        master = torch.from_numpy(read_flat(folder / "trainer/master.safetensors", "master"))
        if master.shape != policy.master.shape:
            sizes = f"a trainer state of {len(master)} weights for a model of {len(policy.master)}"
            what = f"checkpoint {folder} has {sizes}"
            raise GpuWorkerError("CorruptCheckpoint", f"{what}: delete it and redo the iteration that made it")
        policy.master.copy_(master)
        policy.refresh()
    optimizer = FlatAdamW(policy.master, policy.decayed())
    if (folder / "trainer/exp_avg.safetensors").is_file():
        check()
        moments = [
            torch.from_numpy(read_flat(folder / f"trainer/{name}.safetensors", name)) for name in STATE_FILES[1:]
        ]
        optimizer.restore(manifest.optimizer_steps, *moments)
    return TrainerState(policy, optimizer)


def prune(home: Path, run_id: str, keep: int, untouchable: set[Path]) -> list[Path]:
    """Deletes all but the newest `keep` trained checkpoints of the run. Version 0 has only links and stays."""
    own: list[tuple[int, Path]] = []
    for path in (home / "checkpoints").glob(f"[!.]*/{MANIFEST}"):
        try:
            manifest = read_manifest(path.parent)
        except GpuWorkerError:
            continue
        if manifest.run_id == run_id and manifest.version > 0:
            own.append((manifest.version, path.parent))
    own.sort(reverse=True)
    doomed = [folder for _, folder in own[keep:] if folder not in untouchable]
    for folder in doomed:
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return doomed
