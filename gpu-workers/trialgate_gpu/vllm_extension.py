"""Extends vLLM's workers for publications: `--worker-extension-cls trialgate_gpu.vllm_extension.TrialgateWorker`.

On a CPU vLLM 0.32 packs weights for its kernels, and `reload_weights` leaves two kinds of them wrong. An output head
tied to the embeddings keeps the packed copy of the old weights, because only the embeddings are loaded. Experts are
loaded unpacked, but their kernel reads them as packed. The engine would sample from weights that no step made.
"""

from __future__ import annotations


class TrialgateWorker:
    """vLLM mixes this into its worker's class and calls the methods by name through /collective_rpc."""

    def trialgate_reload_weights(self, weights_path: str) -> list[str]:
        """Calls `reload_weights`, then packs what it left unpacked or stale. Returns the names of the stale layers."""
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
        from vllm.platforms import current_platform

        # The layer around the experts may have the same method, but not their weights.
        experts = {
            layer: layer.w13_weight[0].clone()
            for layer in self.get_model().modules()
            if current_platform.is_cpu() and "w13_weight" in dict(layer.named_parameters(recurse=False))
        }
        self.reload_weights(weights_path=weights_path)
        for layer, packed in experts.items():
            kernel = getattr(layer.quant_method, "moe_kernel", None)
            # vLLM does not load the experts of some models. Those are still packed.
            if kernel and not layer.w13_weight[0].equal(packed):
                kernel.fused_experts.process_weights_after_loading(layer)
        stale = [
            (name, layer)
            for name, layer in self.get_model().named_modules()
            if hasattr(layer, "cpu_linear") and layer.weight.numel() > 0
        ]
        for _, layer in stale:
            dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
        return [name for name, _ in stale]
