"""What vLLM's workers lack for a publication: `--worker-extension-cls trialgate_gpu.vllm_extension.TrialgateWorker`.

On a CPU vLLM 0.32 packs each linear weight for oneDNN. `reload_weights` packs anew the layers that it loads, but an
output head tied to the embeddings is loaded as these, so its packed copy stays that of the weights before: the engine
would go on to sample from a mix of two policies, with checksums that look right.
"""

from __future__ import annotations


class TrialgateWorker:
    """Mixed into the worker's class; its methods are called by name through /collective_rpc."""

    def trialgate_reload_weights(self, weights_path: str) -> list[str]:
        """`reload_weights`, then packs what it left stale; returns the names of those layers."""
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        self.reload_weights(weights_path=weights_path)
        stale = [
            (name, layer)
            for name, layer in self.get_model().named_modules()
            if hasattr(layer, "cpu_linear") and layer.weight.numel() > 0
        ]
        for _, layer in stale:
            dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
        return [name for name, _ in stale]
