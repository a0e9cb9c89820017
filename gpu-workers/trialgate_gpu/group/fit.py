"""Refuses a model or a sequence that does not fit into memory, before anything of it is loaded or computed.

`activations.py` counts what depends on the tokens. Not counted: what single operations allocate and free, attention
weights, which a CPU keeps, and what the allocator loses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ..errors import GpuWorkerError
from ..lora import Lora, add_adapter
from ..policy import in_float32_instead, layers_of
from .activations import Passes
from .world import World

MASTER, GRADIENT, MOMENTS = 4, 4, 8
# A step computes at least about so many tokens at once. A pack may be far from full, so its size refuses nothing.
LEAST_TOKENS = 512
# `activations_test.py` found peaks from 0.65 times the sum. A sequence is refused only if it cannot fit.
LEAST_PART = 0.65
Parts = dict[str, int]


@dataclass(frozen=True)
class Ranks:
    """What decides how much memory a step needs, beside its model. `on_host` ranks share one main memory.

    `tokens` are computed at once: those of a pack. If it is one sequence that `is_sequence`, which cannot be split.
    """

    device: torch.device
    count: int
    on_host: int
    dtype: torch.dtype
    tokens: int
    offload: bool = False
    recompute: bool = False
    is_sequence: bool = False

    @property
    def pass_dtype(self) -> torch.dtype:
        """The dtype in which training passes compute. Sharded weights are gathered in `dtype`."""
        in_float32 = self.count == 1 and not self.offload and in_float32_instead(self.device, self.dtype)
        return torch.float32 if in_float32 else self.dtype


def without_memory(config: PreTrainedConfig, lora: Lora | None) -> PreTrainedModel:
    """Returns the model with its adapter, as shapes alone."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        if lora is not None:
            add_adapter(model, lora)
    return model


def require_room(model: PreTrainedModel, ranks: Ranks, world: World, room: int) -> None:
    """Raises `DoesNotFit` on all ranks, with the sum, when one of them needs more than its device or host has.

    `model` is one `without_memory`. The host has `room` bytes of main memory for its ranks.
    """

    def require() -> None:
        if what := what_lacks(model, ranks, room):
            raise GpuWorkerError("DoesNotFit", what)

    world.together(require)


def how_to_fit(ranks: Ranks, most: int) -> str:
    """Says what to change. `most` tokens at once would fit, none if it is not positive."""
    settings = [] if ranks.recompute else ["`activation_checkpointing: true`"]
    if not (ranks.offload or ranks.device.type == "cpu"):
        settings.append("`cpu_offload: true`")
    if most > 0 and not ranks.is_sequence:
        settings.append(f"`pack_tokens` of at most {most}")
    of_deployment = ", ".join([*settings, "more `ranks`"])
    shorter = ""
    if ranks.is_sequence:
        fits = f", of which at most {most:,} tokens fit" if most > 0 else ""
        shorter = f"shorten the longest sequences{fits} (`max_prompt_length`, `budgets.tokens`), "
    return f"{shorter}give the deployment {of_deployment} or larger devices, or choose a smaller model or LoRA"


def what_lacks(model: PreTrainedModel, ranks: Ranks, room: int) -> str | None:
    """Returns the sum that is too large as a sentence, with what to change, or None if all fits.

    `room` is what the host's main memory has for its ranks.
    """
    device, dtype, offload = ranks.device, ranks.dtype, ranks.offload
    is_cpu = device.type == "cpu"
    passes = Passes(model, ranks.pass_dtype, recompute=ranks.recompute)
    on_device = needed(model, ranks.count, dtype, offload=offload) | passes.parts(ranks.tokens)
    in_main = main_memory(model, ranks.count, dtype, offload=offload)
    if ranks.pass_dtype != dtype:
        on_device["the same in float32"] = MASTER * sum(each.numel() for each in model.parameters())
    # A CPU's ranks have their weights in the main memory that they share, where offloading moves nothing.
    sums = [(ranks.on_host, "the main memory", room, on_device | in_main if is_cpu else in_main)]
    if not is_cpu:
        sums.insert(0, (1, str(device), torch.cuda.get_device_properties(device).total_memory, on_device))
        # Several ranks read a weight at a time (`weight_source.py`).
        if ranks.count == 1 and not offload:
            read = dtype.itemsize * sum(each.numel() for each in model.parameters())
            sums.append((1, "the main memory", room, {"the model, which the first one reads": read}))
    for count, where, there, parts in sums:
        total = count * sum(parts.values())
        if (LEAST_PART if ranks.is_sequence else 1) * total > there:
            terms = " + ".join(f"{size / 2**30:.1f} GiB {what}" for what, size in parts.items())
            total_parameters = sum(each.numel() for each in model.parameters())
            what = f"a model of {total_parameters / 1e9:.2f}B parameters does not fit on {ranks.count} rank(s)"
            if ranks.is_sequence:
                what += f" with a sequence of {ranks.tokens:,} tokens"
            what += f": each needs {terms} = {sum(parts.values()) / 2**30:.1f} GiB"
            what += f", the {count} of a host {total / 2**30:.1f} GiB" if count > 1 else ""
            # Without activations the sum would leave so much for them.
            left = there // count - sum(parts.values()) + passes.of_tokens(ranks.tokens)
            most = left // passes.of_tokens(1) if passes.activations(ranks.tokens) in parts else 0
            return f"{what}, and {where} has {there / 2**30:.1f} GiB; {how_to_fit(ranks, most)}"
    return None


def share_of(model: nn.Module, ranks: int, *, trained: bool) -> int:
    """Returns the weights of rank 0's part. FSDP2 divides each tensor by rows, and fills up to whole rows."""
    chosen = [each for each in model.parameters() if each.requires_grad == trained]
    return sum(-(-each.shape[0] // ranks) * (each.numel() // each.shape[0]) for each in chosen)


def needed(model: nn.Module, ranks: int, dtype: torch.dtype, *, offload: bool) -> Parts:
    """Returns the bytes of weights and gradients that a rank needs on its device. `offload` takes most away."""
    compute = dtype.itemsize
    total = sum(each.numel() for each in model.parameters())
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    layers = layers_of(model)
    of_layers = [sum(each.numel() for each in layer.parameters()) for layer in layers]
    head = model.get_output_embeddings()
    if ranks == 1 and not offload:
        parts = {"float32 weights": MASTER * trained, "moments": MOMENTS * trained, "gradient": GRADIENT * trained}
        if trained < total:
            # `Policy.in_float32` has the frozen weights of one layer at a time.
            parts["float32 weights of the self-check"] = MASTER * (total - sum(of_layers) + max(of_layers))
        return parts | {"compute weights": compute * total}
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
    return parts


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
