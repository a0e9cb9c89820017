"""Extends vLLM's workers for publications: `--worker-extension-cls trialgate_gpu.vllm_extension.TrialgateWorker`.

On a CPU vLLM 0.32 packs weights for its kernels, and `reload_weights` leaves two kinds of them wrong. An output head
tied to the embeddings keeps the packed copy of the old weights, because only the embeddings are loaded. Experts are
loaded unpacked, but their kernel reads them as packed. The engine would sample from weights that no step made.

With LoRA it also dies on a CPU when a prompt's log-probabilities are computed beside other requests (vllm#16668), and
in a batch with an adapter's tokens it computes the base's tokens with the adapter of the last slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

# vLLM imports this module in each worker before it looks for the backend of its weight transfers.
WeightTransferEngineFactory.register_engine("gloo", "trialgate_gpu.vllm_transfer", "GlooWeightTransferEngine")

_add_lora_logits = PunicaWrapperCPU.add_lora_logits


def _add_lora_logits_of_samples(
    self: PunicaWrapperCPU, y: torch.Tensor, x: torch.Tensor, *stacked: Any, **more: Any
) -> None:
    """Leaves out the adapters of the output head where the rows are not the sampled ones, but those of a prompt.

    vLLM knows which adapter each sampled row has, and takes that for the rows of the prompt. Trialgate's adapters
    leave the head alone, so nothing is lost.
    """
    if len(self.sampler_indices) == len(x):
        _add_lora_logits(self, y, x, *stacked, **more)


_shrink_prefill = PunicaWrapperCPU._shrink_prefill


def _shrink_tokens_with_adapter(
    self: PunicaWrapperCPU, y: torch.Tensor, x: torch.Tensor, *stacked: Any, **more: Any
) -> None:
    """Gives the base's tokens, whose slot is -1, no part of an adapter. PyTorch takes -1 for the last slot."""
    _shrink_prefill(self, y, x, *stacked, **more)
    y[self.token_lora_indices[: len(y)] == -1] = 0


PunicaWrapperCPU.add_lora_logits = _add_lora_logits_of_samples
PunicaWrapperCPU._shrink_prefill = _shrink_tokens_with_adapter


@contextmanager
def packing_again(model: Any) -> Iterator[list[str]]:
    """Packs what a reload in the block left unpacked or stale. The list then has the names of the stale layers."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.platforms import current_platform

    # The layer around the experts may have the same method, but not their weights.
    experts = {
        layer: layer.w13_weight[0].clone()
        for layer in model.modules()
        if current_platform.is_cpu() and "w13_weight" in dict(layer.named_parameters(recurse=False))
    }
    names: list[str] = []
    yield names
    for layer, packed in experts.items():
        kernel = getattr(layer.quant_method, "moe_kernel", None)
        # vLLM does not load the experts of some models. Those are still packed.
        if kernel and not layer.w13_weight[0].equal(packed):
            kernel.fused_experts.process_weights_after_loading(layer)
    for name, layer in model.named_modules():
        if hasattr(layer, "cpu_linear") and layer.weight.numel() > 0:
            dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
            names.append(name)


class TrialgateWorker:
    """vLLM mixes this into its worker's class and calls the methods by name through /collective_rpc."""

    def trialgate_reload_weights(self, weights_path: str) -> list[str]:
        """Calls `reload_weights`, then packs what it left unpacked or stale. Returns the names of the stale layers."""
        with packing_again(self.get_model()) as names:
            self.reload_weights(weights_path=weights_path)
        return names
