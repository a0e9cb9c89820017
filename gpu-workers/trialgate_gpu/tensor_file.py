"""Writes a safetensors file and its sha256 in one pass, and reads tensors back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from .errors import GpuWorkerError

WHOLE = "model.safetensors"
INDEX = f"{WHOLE}.index.json"
PIECE_BYTES = 16 * 1024 * 1024
Tensors = dict[str, tuple[str, tuple[int, ...], np.ndarray]]
DTYPES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def as_written(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], np.ndarray]:
    """Returns a tensor in the form that `write_tensors` takes: as bytes, because numpy has no bfloat16."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return DTYPES[tensor.dtype], tuple(tensor.shape), flat.view(torch.uint8).numpy()


def tensor_files(folder: Path) -> list[Path]:
    """Returns the files of a model folder's tensors, by transformers' rule.

    It leaves out files that have the same weights again, in a form of the maker's own. Raises `BadModel` where vLLM
    would read other files, or where files are missing.
    """
    index = folder / INDEX
    named = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.is_file() else []
    if (folder / WHOLE).exists():
        if others := [name for name in named if name != WHOLE]:
            what = f"model folder {folder} has {WHOLE}, and {INDEX} that names {others[0]}"
            raise GpuWorkerError("BadModel", f"{what}: engines would read other weights; remove one of the two")
        return [folder / WHOLE]
    if lost := [name for name in named if not (folder / name).exists()]:
        what = f"model folder {folder} lacks {lost[0]}, which {INDEX} names"
        raise GpuWorkerError("BadModel", f"{what}; download it again or choose another model")
    return [folder / name for name in named] or sorted(folder.glob("*.safetensors"))


def stored_tensors(folder: Path) -> dict[str, Path]:
    """Returns the file of each tensor that a model folder holds."""
    found: dict[str, Path] = {}
    for path in tensor_files(folder):
        with safe_open(path, "pt") as file:
            found |= dict.fromkeys(file.keys(), path)
    return found


def read_tensor(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, "pt") as file:
        return file.get_tensor(name)


def stored_bytes(folder: Path) -> dict[str, int]:
    """Returns the size of each tensor that a model folder holds."""
    found: dict[str, int] = {}
    for path in tensor_files(folder):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        found |= {name: each["data_offsets"][1] - each["data_offsets"][0] for name, each in header.items()}
    return found


def write_tensors(path: Path, tensors: Tensors, metadata: dict[str, str], check: Callable[[], None]) -> str:
    """Writes a file and returns its sha256. Calls `check` between pieces.

    `tensors` maps a name to (safetensors dtype, shape, array with those bytes). Hashing and writing overlap, because
    both release the interpreter lock.
    """
    header: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for name, (dtype, shape, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    sha = hashlib.sha256()
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as hasher:
        os.posix_fallocate(file.fileno(), 0, 8 + len(text) + offset)
        for piece in (len(text).to_bytes(8, "little") + text, *_pieces(tensors)):
            check()
            hashed = hasher.submit(sha.update, piece)
            view = memoryview(piece)
            while view:
                view = view[file.write(view) :]
            hashed.result()
    return sha.hexdigest()


def _pieces(tensors: Tensors):
    for _, _, array in tensors.values():
        view = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
