"""Writes and reads checkpoints: folders that vLLM loads, written as a temporary folder and put in place by one rename.

`HOME/checkpoints/{key[:32]}/` has `model.safetensors` or several files and their index (bfloat16, with the tensors of
the base model's files), config, tokenizer and chat template, `manifest.json`, and in some versions the trainer's state
(`group/saved_state.py`). With LoRA it has the adapter instead of a model (see lora.py).
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from .base import TEMPLATES
from .durable import sync, sync_tree
from .errors import GpuWorkerError
from .group.placement import Optimizer, Placement
from .group.saved_state import has_state, restore
from .group.world import World
from .lora import Lora, copy_adapter_files
from .manifest import ADAPTER, BASE, MANIFEST, Manifest
from .policy import Policy
from .processes import is_alive
from .tensor_file import Tensors, as_written, read_tensor, sha256_of, stored_bytes, stored_tensors, write_tensors

TEMPORARY = ".tmp-"
TENSOR_ENDINGS = (".safetensors", ".bin", ".pt", ".gguf", ".safetensors.index.json", ".bin.index.json")
WEIGHTS = "model.safetensors"
LARGEST_FILE = 4 << 30
SPARE_BYTES = 64 * 1024 * 1024


@dataclass
class TrainerState:
    policy: Policy
    optimizer: Optimizer


def checkpoint_folder(home: Path, key: str) -> Path:
    return home / "checkpoints" / key[:32]


@contextmanager
def draft_folder(target: Path, needed_bytes: int, world: World = World()) -> Iterator[Path]:  # noqa: B008
    """Yields a temporary folder that becomes `target` when the block succeeds and is removed when it fails.

    Rank 0 makes it, and all ranks write into it. It is put in place when all have written.
    """
    draft = None
    try:
        if world.rank == 0:
            draft = _make_draft(target, needed_bytes)
        yield Path(world.of_first(str(draft)))
        world.wait()
        if draft is not None:
            sync_tree(draft)
            _rename(draft, target)
        world.wait()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(target.parent).free
        what = f"disk full: {target.parent} has {free >> 20} MiB free and a checkpoint needs {needed_bytes >> 20} MiB"
        raise GpuWorkerError(
            "DiskFull", f"{what}; earlier checkpoints are intact: make room, then resume the run"
        ) from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _make_draft(target: Path, needed_bytes: int) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    if shutil.disk_usage(target.parent).free < needed_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    draft = draft_path(target)
    draft.mkdir()
    return draft


def draft_path(target: Path) -> Path:
    """Returns the path of a new temporary folder of this process."""
    # `activities/run/link-checkpoint.ts` gives its drafts the same form, so that `remove_leftovers` finds them too.
    return target.parent / f"{TEMPORARY}{target.name}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _rename(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (target / MANIFEST).is_file():
            raise
    sync(target.parent)


def remove_leftovers(checkpoints: Path) -> None:
    """Deletes temporary folders of processes of this host that have ended."""
    for draft in checkpoints.glob(f"{TEMPORARY}*"):
        host, pid = draft.name.removeprefix(TEMPORARY).split("-", 1)[1].rsplit("-", 2)[:2]
        if host == socket.gethostname() and not is_alive(int(pid)):
            shutil.rmtree(draft, ignore_errors=True)


def copy_side_files(source: Path, target: Path) -> None:
    """Copies config, tokenizer and chat templates, and sets bfloat16 in the config, which is the weights' dtype."""
    if (source / BASE).is_dir():
        copy_adapter_files(source, target)
        return
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name != MANIFEST and not path.name.endswith(TENSOR_ENDINGS):
            shutil.copyfile(path, target / path.name)
    if (source / TEMPLATES).is_dir():
        shutil.copytree(source / TEMPLATES, target / TEMPLATES)
    config = json.loads((target / "config.json").read_text())
    config.pop("torch_dtype", None)
    config["dtype"] = "bfloat16"
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def require_complete(policy: Policy, parent: Path) -> None:
    """Raises `BadModel` when a weight is not in `parent`'s files: transformers then filled it with random numbers."""
    names = {name for chunk in policy.model_chunks() for name in chunk}
    if lost := sorted(names - set(stored_tensors(parent)) - policy.tied_names()):
        what = f"the files of model {parent} have no tensor {lost[0]!r}, which its configuration asks for"
        raise GpuWorkerError("BadModel", f"{what}: they are cut short, or of another model")


def weight_files(parent: Path) -> dict[str, list[str]]:
    """Returns the names of the tensors of each file of weights: one file, or several of at most `LARGEST_FILE`."""
    groups: list[list[str]] = [[]]
    size = 0
    sizes = stored_bytes(parent)
    for name in stored_tensors(parent):
        own = sizes[name]
        if groups[-1] and size + own > LARGEST_FILE:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += own
    if len(groups) == 1:
        return {WEIGHTS: groups[0]}
    return {f"model-{n:05}-of-{len(groups):05}.safetensors": names for n, names in enumerate(groups, 1)}


def write_weights(
    policy: Policy, parent: Path, folder: Path, check: Callable[[], None], world: World
) -> dict[str, str]:
    """Writes what an engine loads: a model like that of `parent`, or an adapter. Returns the sha256 by file."""
    if policy.lora is None:
        return write_model(policy.weight_chunks(), parent, folder, check, world)
    adapter = {name: as_written(tensor) for chunk in policy.weight_chunks() for name, tensor in chunk.items()}
    own = {}
    if world.rank == 0:
        own[ADAPTER] = write_tensors(folder / ADAPTER, adapter, {"format": "pt"}, check)
    return world.of_first(own)


def write_model(
    chunks: Iterable[dict[str, torch.Tensor]], parent: Path, folder: Path, check: Callable[[], None], world: World
) -> dict[str, str]:
    """Writes the tensors of `parent`, by the same names. Returns the sha256 by file.

    Each rank writes some of the files. Tensors that transformers does not load, such as those of layers for speculative
    decoding, are copied from `parent`.
    """
    files = weight_files(parent)
    own = dict(list(files.items())[world.rank :: world.size])
    wanted = {name for names in own.values() for name in names}
    found: Tensors = {}
    for chunk in chunks:
        check()
        found |= {name: as_written(tensor) for name, tensor in chunk.items() if name in wanted}
    stored = stored_tensors(parent)
    written, size = {}, 0
    for file, names in own.items():
        content = {name: found.pop(name, None) or as_written(read_tensor(stored[name], name)) for name in names}
        size += sum(array.nbytes for _, _, array in content.values())
        written[file] = write_tensors(folder / file, content, {"format": "pt"}, check)
    of_ranks = world.gather((written, size))
    if world.rank == 0 and len(files) > 1:
        _write_index(folder, files, sum(size for _, size in of_ranks))
    return {file: sha for written, _ in of_ranks for file, sha in written.items()}


def _write_index(folder: Path, files: dict[str, list[str]], size: int) -> None:
    """Writes the index that Hugging Face's readers and engines look for when weights are in several files."""
    of_name = {name: file for file, names in files.items() for name in names}
    index = {"metadata": {"total_size": size}, "weight_map": of_name}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index, indent=2) + "\n")


def state_bytes(policy: Policy, parent: Path) -> int:
    """Returns what a version may need. A model is written with all tensors of `parent`, such as those of towers."""
    trained = sum(map(math.prod, policy.shapes.values()))
    weights = sum(stored_bytes(parent).values()) if policy.lora is None else 2 * trained
    return weights + 3 * 4 * trained + SPARE_BYTES


def load_state(folder: Path, manifest: Manifest, placement: Placement, check: Callable[[], None]) -> TrainerState:
    """Loads a checkpoint and checks its files against the checksums of its manifest, each rank some of them.

    The weights are those of the checkpoint's trainer state, or if it has none those that an engine loads. Raises
    `MissingCheckpoint` or `CorruptCheckpoint` when files differ.
    """
    world = placement.world
    world.together(lambda: _check_files(folder, manifest, world, check))
    lora = Lora(**manifest.lora) if manifest.lora else None
    policy = placement.policy(folder / BASE if lora else folder, lora)
    optimizer = placement.optimizer(policy)
    if world.ask_first(lambda: has_state(folder)):
        restore(policy, optimizer, folder, manifest.checkpoint_sha256, world, check)
    elif lora and ADAPTER in manifest.files:
        policy.read_adapter(folder / ADAPTER)
    return TrainerState(policy, optimizer)


def _check_files(folder: Path, manifest: Manifest, world: World, check: Callable[[], None]) -> None:
    for file, sha in list(manifest.files.items())[world.rank :: world.size]:
        check()
        if not (folder / file).exists():
            raise GpuWorkerError(
                "MissingCheckpoint", f"checkpoint {folder} lacks {file}: restore it or redo the iteration"
            )
        if sha256_of(folder / file) != sha:
            what = f"checkpoint file {folder / file} does not have the sha256 of its manifest"
            raise GpuWorkerError("CorruptCheckpoint", f"{what}: delete {folder} and redo the iteration that made it")
    if (folder / "trainer/master.safetensors").exists():
        what = f"the trainer's state of {folder} has the form of an older release"
        raise GpuWorkerError("CorruptCheckpoint", f"{what}: finish the run with that release, or fork its version 0")
