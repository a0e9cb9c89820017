"""Refuses a model that does not fit into memory, before anything of it is loaded."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from ..errors import GpuWorkerError
from ..head import CHUNK_ROWS
from ..lora import Lora, add_adapter
from ..policy import in_float32_instead, layers_of
from .world import World

MASTER, GRADIENT, MOMENTS, LOGITS = 4, 4, 8, 4
# A step needs at least this much for activations. How much more depends on its longest sequence, which nobody knows
# yet, and on `pack_tokens` and `activation_checkpointing`: a step whose memory is full says which to change.
LEAST_ACTIVATIONS = 256 << 20
Parts = dict[str, int]


def require_room(
    folder: Path, device: torch.device, world: World, dtype: torch.dtype, *, offload: bool, lora: Lora | None = None
) -> None:
    """Raises `DoesNotFit` on all ranks, with the sum, when one of them needs more than its device or host has."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        if lora is not None:
            add_adapter(model, lora)
    on_host = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def require() -> None:
        if what := what_lacks(model, device, world.size, on_host, dtype, main_memory_room(), offload=offload):
            raise GpuWorkerError("DoesNotFit", f"{what}; {how_to_fit(device, offload=offload)}")

    world.together(require)


def how_to_fit(device: torch.device, *, offload: bool) -> str:
    offloading = "" if offload or device.type == "cpu" else " or set `cpu_offload: true`"
    return f"raise the deployment's `ranks`{offloading}, take larger devices, or choose a smaller model or LoRA"


def what_lacks(
    model: nn.Module, device: torch.device, ranks: int, on_host: int, dtype: torch.dtype, room: int, *, offload: bool
) -> str | None:
    """Returns the sum that is too large as a sentence, or None if all fits.

    `on_host` ranks share one main memory, which has `room` bytes for them.
    """
    is_cpu = device.type == "cpu"
    on_device = needed(model, ranks, dtype, offload=offload)
    in_main = main_memory(model, ranks, dtype, offload=offload)
    if ranks == 1 and not offload and in_float32_instead(device, dtype):
        on_device["the same in float32"] = MASTER * sum(each.numel() for each in model.parameters())
    # A CPU's ranks have their weights in the main memory that they share, where offloading moves nothing.
    sums = [(on_host, "the main memory", room, on_device | in_main if is_cpu else in_main)]
    if not is_cpu:
        sums.insert(0, (1, str(device), torch.cuda.get_device_properties(device).total_memory, on_device))
        read = dtype.itemsize * sum(each.numel() for each in model.parameters())
        sums.append((1, "the main memory", room, {"the model, which the first one reads": read}))
    for count, where, there, parts in sums:
        if (total := count * sum(parts.values())) > there:
            terms = " + ".join(f"{size / 2**30:.1f} GiB {what}" for what, size in parts.items())
            total_parameters = sum(each.numel() for each in model.parameters())
            what = f"a model of {total_parameters / 1e9:.2f}B parameters does not fit on {ranks} rank(s): "
            what += f"each needs {terms} = {sum(parts.values()) / 2**30:.1f} GiB"
            what += f", the {count} of a host {total / 2**30:.1f} GiB" if count > 1 else ""
            return f"{what}, and {where} has {there / 2**30:.1f} GiB"
    return None


def share_of(model: nn.Module, ranks: int, *, trained: bool) -> int:
    """Returns the weights of rank 0's part. FSDP2 divides each tensor by rows, and fills up to whole rows."""
    chosen = [each for each in model.parameters() if each.requires_grad == trained]
    return sum(-(-each.shape[0] // ranks) * (each.numel() // each.shape[0]) for each in chosen)


def needed(model: nn.Module, ranks: int, dtype: torch.dtype, *, offload: bool) -> Parts:
    """Returns the bytes that a rank needs on its device. `offload` takes master weights and moments off it."""
    compute = dtype.itemsize
    total = sum(each.numel() for each in model.parameters())
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    layers = layers_of(model)
    of_layers = [sum(each.numel() for each in layer.parameters()) for layer in layers]
    head = model.get_output_embeddings()
    last = {"logits": 2 * LOGITS * CHUNK_ROWS * head.weight.shape[0], "activations at least": LEAST_ACTIVATIONS}
    if head.weight.requires_grad:
        # A chunk's part of the head's gradient is a whole matrix, before it is added.
        last = {"a chunk's gradient of the head": compute * head.weight.numel()} | last
    if ranks == 1 and not offload:
        parts = {"float32 weights": MASTER * trained, "moments": MOMENTS * trained, "gradient": GRADIENT * trained}
        if trained < total:
            # `Policy.in_float32` has the frozen weights of one layer at a time.
            parts["float32 weights of the self-check"] = MASTER * (total - sum(of_layers) + max(of_layers))
        return parts | {"compute weights": compute * total} | last
    # The embeddings and the head are whole during a pass, and two layers: the one that runs and the next.
    whole = total - sum(of_layers) + 2 * max(of_layers)
    parts = {} if offload else kept(model, ranks, dtype) | {"gradient": GRADIENT * share_of(model, ranks, trained=True)}
    parts["gathered weights"] = compute * whole
    if head.weight.requires_grad:
        parts["the head's gradient"] = GRADIENT * head.weight.numel()
    # A layer's gradient is whole in the compute dtype, and again in float32 while the ranks' are summed. So is that of
    # what is outside the layers, but not that of an untied head, which has its own sum.
    trained_in_layers = [sum(each.numel() for each in layer.parameters() if each.requires_grad) for layer in layers]
    outside = trained - sum(trained_in_layers)
    if head.weight.requires_grad and head.weight is not model.get_input_embeddings().weight:
        outside -= head.weight.numel()
    parts["gradient while it is summed"] = (compute + GRADIENT) * max(outside, *trained_in_layers)
    return parts | last


def main_memory(model: nn.Module, ranks: int, dtype: torch.dtype, *, offload: bool) -> Parts:
    """Returns the bytes that a rank needs in its host's main memory: what is offloaded, and the state that is written.

    The state is copied there and written while the next step runs.
    """
    share = share_of(model, ranks, trained=True)
    parts = {"state that is written": (MASTER + MOMENTS) * share}
    if offload:
        parts |= kept(model, ranks, dtype) | {"gradient": GRADIENT * share}
    return parts


def kept(model: nn.Module, ranks: int, dtype: torch.dtype) -> Parts:
    """Returns the bytes of what a rank keeps of a sharded model between passes."""
    share, frozen = (share_of(model, ranks, trained=trained) for trained in (True, False))
    parts = {"float32 weights": MASTER * share, "moments": MOMENTS * share}
    return parts | ({"frozen weights": dtype.itemsize * frozen} if frozen else {})


def main_memory_room() -> int:
    """Returns the bytes of main memory that are available."""
    return _meminfo("MemAvailable")


def total_main_memory() -> int:
    """Returns the bytes of main memory that this machine has."""
    return _meminfo("MemTotal")


def _meminfo(name: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").is_file() else []
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")]
    return found[0] if found else 1 << 62
