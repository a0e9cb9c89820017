"""Counts the memory that a training pass needs for its tokens.

A layer keeps for the backward pass what autograd saves: PyTorch itself says how much, when the model runs on the device
`meta`, which has shapes and no memory (`torch.autograd.graph.saved_tensors_hooks`). In a Llama of width h, with an MLP
of width f and queries and keys of widths q and k, that is a token and layer, with c bytes a number,

    2 norms, which compute in float32:                               2 (4 + c) h
    inputs of the projections behind them:                           2 c h
    queries, keys, values and output of attention (FlashAttention):  c (2 q + 2 k)
    gate, its activation, up, and their product:                     4 c f

(Korthikanti et al., arXiv:2205.05198, section 4.1, count the same for GPT's layers with dropout.) With activation
checkpointing a layer keeps only its input, c h, and one layer has all of it at a time (Chen et al., arXiv:1604.06174).
FSDP2 divides weights, not tokens: the number of ranks does not change the sum.

The pass through the head (`head.py`) has two numbers of width h for each token: the last hidden states and their
gradient. For a chunk of rows it has the logits in float32, their gradient in the compute dtype, and then that chunk's
part of the head's gradient, which is a whole matrix, or before it the gradient in float32.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..head import CHUNK_ROWS
from ..performance import is_of_experts
from ..policy import layers_of

LOGITS = 4
NAME = "trialgate_sizes"
# What a layer keeps grows with the tokens in proportion; so many show how much it is. Layers that keep a state compute
# in chunks of 64 or 256 tokens, and pad the last one.
SOME_TOKENS = 1024


class _Attention(torch.autograd.Function):
    """Keeps what a fused kernel keeps: queries, keys, values and the output. There is no backward pass."""

    @staticmethod
    def forward(
        context: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kept: torch.Tensor
    ) -> torch.Tensor:
        context.save_for_backward(query, key, value, kept)
        return kept.view_as(kept)


def _attend(_: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *__: Any, **___: Any) -> Any:
    batch, heads, tokens, _ = query.shape
    return _Attention.apply(query, key, value, query.new_empty(batch, tokens, heads, value.shape[-1])), None


class Passes:
    """What the passes of `model`, which is on the device `meta`, need in `dtype`."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, *, recompute: bool) -> None:
        self.compute, self.recompute = dtype.itemsize, recompute
        self.head = model.get_output_embeddings().weight
        self.width = self.head.shape[1]
        self.layers, self.outside = _known_of_layers(model, dtype)

    def of_tokens(self, tokens: int) -> int:
        """Returns the bytes that grow with the number of tokens that are computed at once."""
        layers = sum(self.layers)
        if self.recompute:
            layers = self.compute * self.width * len(self.layers) + max(self.layers)
        return tokens * (layers + self.outside + 2 * self.compute * self.width)

    def activations(self, tokens: int) -> str:
        return f"activations of {tokens:,} tokens"

    def parts(self, tokens: int) -> dict[str, int]:
        """Returns the bytes of each part when so many tokens are computed at once."""
        logits = min(tokens, CHUNK_ROWS) * self.head.shape[0]
        parts = {"logits": (LOGITS + self.compute) * logits}
        in_float32 = LOGITS * logits if self.compute < LOGITS else 0
        matrix = self.compute * self.head.numel() if self.head.requires_grad else 0
        if matrix > in_float32:
            parts["a chunk's gradient of the head"] = matrix
        else:
            parts["logits"] += in_float32
        return parts | {self.activations(tokens): self.of_tokens(tokens)}


# Many ask about the same model, such as each step with a long sequence. On `meta` it has no memory to keep.
@lru_cache(maxsize=2)
def _known_of_layers(model: PreTrainedModel, dtype: torch.dtype) -> tuple[list[int], int]:
    try:
        return kept_by_layers(model, dtype)
    except Exception:
        # The forward pass of some families reads numbers (JetMoE's router), which `meta` does not have. What is not
        # known counts nothing. Whether a family can be trained is for others to say (`self_check.py`).
        return [0], 0


def kept_by_layers(model: PreTrainedModel, dtype: torch.dtype) -> tuple[list[int], int]:
    """Returns the bytes that each layer keeps for each token, and those that the rest keeps."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, lambda *_, **__: None)
    # On `meta`, PyTorch multiplies a mixture's experts in bfloat16 only. In float32 that counts too little.
    has_experts = any(is_of_experts(each) for each in model.parameters())
    model = copy.deepcopy(model).eval().to(torch.bfloat16 if has_experts else dtype)
    model.set_attn_implementation(NAME)
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    # Storages that are kept stay alive here, so that no two have the same address.
    kept: dict[int, torch.UntypedStorage] = {}
    before: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    def note(*_: Any) -> None:
        before.append(sum(each.nbytes() for each in kept.values()))

    layers = layers_of(model)
    for layer in layers:
        layer.register_forward_pre_hook(note)
    layers[-1].register_forward_hook(note)
    tokens = torch.zeros(1, SOME_TOKENS, dtype=torch.int64, device="meta")
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        # Without a mask transformers looks into positions for sequences, and into a mask of tokens for padding. On this
        # device there are no numbers.
        mask = torch.ones(1, 1, SOME_TOKENS, SOME_TOKENS, dtype=torch.bool, device="meta")
        model.base_model(input_ids=tokens, attention_mask=mask, use_cache=False)
    note()
    of_layers = [(after - at) // SOME_TOKENS for at, after in pairwise(before[:-1])]
    return of_layers, before[-1] // SOME_TOKENS - sum(of_layers)
