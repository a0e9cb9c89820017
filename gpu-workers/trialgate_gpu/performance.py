"""Measures how well a step uses its device: floating-point operations, and memory.

Names of metrics are verl's where they mean the same.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from .pack import Chain, distinct_spans

# How many experts a token uses, by the names that transformers' configurations give it.
EXPERTS_OF_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k")
WITHOUT_ATTENTION = ("linear_attention", "conv", "mlp", "moe")
# Dense bfloat16 TFLOP/s by words of the device's name, from NVIDIA's data sheets. More words go before fewer.
PEAK_TFLOPS = {
    "H100 PCIe": 756.0,
    "H100 NVL": 835.5,
    "H100": 989.0,
    "H200": 989.0,
    "H20": 148.0,
    "GB200": 2500.0,
    "B200": 2250.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L40": 181.0,
    "A40": 149.7,
    "L4": 121.0,
}


def peak_tflops(device: torch.device, given: float | None) -> float | None:
    """Returns the device's peak: what was given, or what is known of it. Nothing is known of a CPU."""
    if given is not None or device.type != "cuda":
        return given
    return peak_by_name(torch.cuda.get_device_name(device))


def peak_by_name(name: str) -> float | None:
    """Returns None for a device that is not listed, and for a part of one (MIG)."""
    if re.search(r"\bMIG\b", name):
        return None
    return next((peak for words, peak in PEAK_TFLOPS.items() if re.search(rf"\b{words}\b", name)), None)


class ModelFlops:
    """Counts the operations that forward and backward of a model need, not those that are done twice to save memory.

    A multiplication with its addition counts as 2. A weight costs 2 in the forward pass, 2 for the gradient of its
    input, and if it is trained 2 for its own. Of a mixture's experts those count that a token uses. The output head
    counts only where a token is trained, attention only for keys that are visible. Of a layer that keeps a state its
    weights count, and not what it does to the state.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config
        tables = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
        head = model.get_output_embeddings().weight
        self.of_token = 0.0
        for each in model.parameters():
            if each.dim() < 2 or each is head or id(each) in tables:
                continue
            # transformers keeps the experts of a layer as one tensor: [experts, out, in].
            used = _experts_of_token(config, each.shape[0]) / each.shape[0] if is_of_experts(each) else 1.0
            self.of_token += _cost(each) * used
        self.of_trained_token = float(_cost(head))
        # What a pair of tokens costs, in all layers with the same window: they see equally many keys.
        self.of_pair: Counter[int | None] = Counter()
        is_mixed = getattr(config, "is_heterogeneous", False)
        for number, window in enumerate(_windows(config)):
            self.of_pair[window] += _cost_of_pair(config.per_layer_config[number] if is_mixed else config)

    def of_chains(self, chains: list[Chain]) -> tuple[int, float]:
        """Returns the number of distinct tokens of `chains`, and the operations of one forward and backward pass."""
        spans = distinct_spans(chains)
        tokens = sum(end - first for first, end in spans)
        pairs = sum(cost * _pairs(first, end, window) for window, cost in self.of_pair.items() for first, end in spans)
        trained = sum(len(each.targets) for each in chains)
        return tokens, tokens * self.of_token + trained * self.of_trained_token + pairs


def is_of_experts(weight: torch.Tensor) -> bool:
    """Returns True for the experts of a layer as one tensor, which a convolution's [channels, 1, kernel] is not."""
    return weight.dim() == 3 and weight.shape[1] > 1


def _experts_of_token(config: PreTrainedConfig, experts: int) -> int:
    """Returns `experts`, all of them, for a configuration that does not say how many a token uses."""
    return next((found for name in EXPERTS_OF_TOKEN if (found := getattr(config, name, None))), experts)


def _cost(weight: torch.Tensor) -> int:
    return weight.numel() * (6 if weight.requires_grad else 4)


def _cost_of_pair(config: PreTrainedConfig) -> float:
    """Returns the cost of scores and of their product with the values. The backward pass needs twice as much."""
    heads = getattr(config, "num_attention_heads", 0)
    width = getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0)
    keys = getattr(config, "qk_head_dim", None) or width
    values = getattr(config, "v_head_dim", None) or width
    return 3 * 2.0 * heads * (keys + values)


def _windows(config: PreTrainedConfig) -> list[int | None]:
    """Returns how many keys a token sees in each layer, None for all, 0 where there is no attention."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if window else ""] * config.num_hidden_layers
    seen = {"sliding_attention": window} | dict.fromkeys(WITHOUT_ATTENTION, 0)
    return [seen.get(kind) for kind in kinds]


def _pairs(first: int, end: int, window: int | None) -> int:
    """Returns how many keys the tokens at depths first, ..., end - 1 see: d + 1 at depth d, without a window."""
    keys = np.arange(first + 1, end + 1)
    return int((keys if window is None else np.minimum(keys, window)).sum())


def forget_peak_memory(device: torch.device) -> None:
    """Makes the peaks of memory those of what follows."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):
        # Not every container allows this; the peak is then that of the process.
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> dict[str, float]:
    """Returns this rank's peaks in GiB: on its GPU, and of the process in main memory."""
    peaks = {}
    if device.type == "cuda":
        peaks["perf/max_memory_allocated_gb"] = torch.cuda.max_memory_allocated(device) / 2**30
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            peaks["perf/max_host_memory_gb"] = int(line.split()[1]) / 2**20
    return peaks
