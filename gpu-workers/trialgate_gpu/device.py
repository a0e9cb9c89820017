"""Chooses the device for training, and sets up the process for speed and repeatable results."""

from __future__ import annotations

import ctypes
import os
import sys

import torch
from transformers.utils import logging as transformers_logging

from .errors import GpuWorkerError

CPU_OUT_OF_MEMORY = "can't allocate memory"
DTYPE = "TRIALGATE_DTYPE"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def choose_device(wanted: str, local_rank: int = 0, local_ranks: int = 1) -> torch.device:
    """Returns the device of this process, which is one of `local_ranks` on this machine."""
    found = torch.cuda.device_count() if wanted != "cpu" else 0
    if wanted == "cuda" and found == 0:
        raise GpuWorkerError(
            "NoDevice", "device cuda was asked for, but torch sees no GPU: install the CUDA build or use --device cpu"
        )
    if found == 0:
        return torch.device("cpu")
    if local_ranks > found:
        what = f"{local_ranks} ranks were asked for on a machine with {found} GPUs"
        raise GpuWorkerError(
            "NoDevice", f"{what}: set the deployment's `ranks` to {found}, or start them on more machines (`launch`)"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def default_pack_tokens(device: torch.device) -> int:
    return 2048 if device.type == "cpu" else 16384


def computes_in_bfloat16(device: torch.device) -> bool:
    """Returns whether passes compute in bfloat16, else in float32.

    The supervisor says which in TRIALGATE_DTYPE, and tells its engine the same. Without it a CPU that has no
    instructions for bfloat16, as x86 without AVX-512, computes in float32: PyTorch's products of matrices are far
    slower there in bfloat16 (`bench/cpu_dtype.py` measures it).
    """
    chosen = os.environ.get(DTYPE) or "auto"
    if chosen not in ("auto", "bfloat16", "float32"):
        raise GpuWorkerError("BadSettings", f"{DTYPE} is {chosen!r}: expected auto, bfloat16 or float32")
    if chosen != "auto":
        return chosen == "bfloat16"
    return device.type != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def is_out_of_memory(error: Exception) -> bool:
    """Returns True when memory ran out. On a CPU, PyTorch raises a plain `RuntimeError` then."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or CPU_OUT_OF_MEMORY in str(error)


def out_of_memory(error: Exception, pack_tokens: int) -> GpuWorkerError:
    """Returns an error that is not retried, because the same step needs the same memory again."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    first = next(iter(str(error).splitlines()), type(error).__name__)
    how = (
        f"set the deployment's `pack_tokens` below {pack_tokens} or `activation_checkpointing: true`, shorten the "
        "longest sequences (`max_prompt_length`, `budgets.tokens`), or choose a smaller model; then resume the run"
    )
    return GpuWorkerError("OutOfMemory", f"the device's memory is full ({first}): {how}")


def tune_process(threads: int | None) -> None:
    """Sets the number of threads and deterministic kernels, and keeps freed activations in the process.

    By default glibc returns each large block to the kernel at once; faulting its pages in again took a third of a
    step's time.
    """
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
