"""Computes attention over a token trie, as one of transformers' attention implementations (`trialgate_trie`).

The keys of a node are its ancestors in order of depth. Key j of a block is visible to a query at depth d if j <= d; in
a sliding window of w tokens also only if j > d - w. Blocks of similar size share one batched call. The usual
alternative, a dense [nodes, nodes] mask, costs several times as much.

On a GPU a trie's attention is FlexAttention (`flex.py`), and that of sequences that share nothing is a flash kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_flash_attention_utils import _flash_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import is_flash_attn_2_available

from .flex import FlexTrie, attend_flex
from .pack import Block, Pack
from .pieces import MAX_PADDING, Pieces, cut
from .prefix import PrefixStates
from .routing import Routing

NAME = "trialgate_trie"
HIDDEN = -1e30
# A layer with more attention weights computes its attention again in the backward pass, and keeps neither them nor the
# keys and values of each block. At long prompts these would be most of a step's memory.
KEPT_WEIGHTS = 2**25
Kernel = Literal["flash", "sdpa", "flex", "buckets"]


@dataclass(frozen=True)
class Bucket:
    """B blocks, padded to L queries and K keys. `queries` [B * L] and `keys` [B * K] are nodes; `depths` is [B, L]."""

    blocks: int
    queries: torch.Tensor
    keys: torch.Tensor
    depths: torch.Tensor


@dataclass(frozen=True)
class RoutedPass:
    """A pack's `Routing` on the device. `differs` is [routed layers, nodes]: where a router would choose others."""

    experts: torch.Tensor
    known: torch.Tensor
    differs: torch.Tensor

    @staticmethod
    def of(routing: Routing, device: torch.device) -> RoutedPass:
        experts, known = (torch.from_numpy(each).to(device) for each in (routing.experts, routing.known))
        nodes, layers, _ = experts.shape
        return RoutedPass(experts, known, torch.zeros(layers, nodes, dtype=torch.bool, device=device))

    def counts(self) -> torch.Tensor:
        """Returns the numbers of tokens, of those with a record, of those that differ in a layer, and of layers."""
        tokens = self.known.new_full((), len(self.known), dtype=torch.int64)
        return torch.stack([tokens, self.known.sum(), self.differs.any(0).sum(), self.differs.sum()])


@dataclass(frozen=True)
class Plan:
    """How the attention of one pack is computed.

    `order` puts the buckets' outputs into node order. When the pack is one chain, attention is plainly causal. `starts`
    has the first node of each sequence and the number of nodes, if its sequences share nothing; else it is None. `trie`
    is there on a GPU, and `buckets` are elsewhere. `depths` are the pack's.
    `prefix` has the keys and values that come before every root; with `is_prefix` this pass computes them. `check` is
    called once a layer and may raise, so that a step stops soon after its cancellation. `routed` has the experts that
    a mixture's routers replay. With `is_idle` its token is none of the batch.
    """

    depths: np.ndarray
    is_chain: bool
    buckets: list[Bucket]
    order: torch.Tensor
    check: Callable[[], None]
    prefix: PrefixStates | None = None
    is_prefix: bool = False
    trie: FlexTrie | None = None
    starts: torch.Tensor | None = None
    routed: RoutedPass | None = None
    is_idle: bool = False

    @property
    def depth(self) -> int:
        return int(self.depths.max()) + 1

    @cached_property
    def pieces(self) -> Pieces:
        """How layers that keep a state compute the pack."""
        has_prefix = self.prefix is not None and not self.is_prefix
        return cut(self.depths, self.order.device, has_prefix=has_prefix, keep=self.is_prefix)

    @property
    def pairs(self) -> int:
        """The number of (query, key) pairs, with padding: a layer has one attention weight for each pair and head."""
        return sum(len(bucket.queries) * len(bucket.keys) // bucket.blocks for bucket in self.buckets)


def _bucket(blocks: list[Block], device: torch.device) -> tuple[Bucket, np.ndarray]:
    queries = np.zeros((len(blocks), max(b.length for b in blocks)), dtype=np.int64)
    keys = np.zeros((len(blocks), max(len(b.path) for b in blocks)), dtype=np.int64)
    depths = np.zeros_like(queries)
    nodes = np.full_like(queries, -1)
    for row, block in enumerate(blocks):
        span = slice(0, block.length)
        nodes[row, span] = queries[row, span] = np.arange(block.start, block.start + block.length)
        depths[row, span] = np.arange(len(block.path) - block.length, len(block.path))
        keys[row, : len(block.path)] = block.path
    tensors = [torch.from_numpy(a).to(device) for a in (queries.reshape(-1), keys.reshape(-1), depths)]
    return Bucket(len(blocks), *tensors), nodes.reshape(-1)


def make_plan(
    pack: Pack,
    device: torch.device,
    check: Callable[[], None],
    prefix: PrefixStates | None = None,
    *,
    is_prefix: bool = False,
) -> Plan:
    starts = pack.starts
    if starts is not None:
        starts = torch.from_numpy(starts.astype(np.int32)).to(device)
    routed = None if pack.routing is None else RoutedPass.of(pack.routing, device)
    if has_flex(device):
        before = 0 if pack.prefix is None else len(pack.prefix)
        trie = FlexTrie(pack.depths, before, device)
        nothing = torch.empty(0, dtype=torch.int64, device=device)
        return Plan(pack.depths, pack.is_chain, [], nothing, check, prefix, is_prefix, trie, starts, routed)
    buckets, order = _bucketed(pack, device)
    return Plan(pack.depths, pack.is_chain, buckets, order, check, prefix, is_prefix, starts=starts, routed=routed)


def has_flex(device: torch.device) -> bool:
    """Returns True when FlexAttention has kernels for this device."""
    return device.type == "cuda" and find_spec("triton") is not None


def _bucketed(pack: Pack, device: torch.device) -> tuple[list[Bucket], torch.Tensor]:
    """Sorts the blocks by size and buckets them so that padding stays under `MAX_PADDING`."""
    buckets: list[list[Block]] = []
    real = padded = 0
    for block in sorted(pack.blocks, key=lambda b: (-len(b.path), -b.length, b.start)):
        cost = block.length * len(block.path)
        if buckets:
            bucket = buckets[-1]
            widest = max(block.length, max(b.length for b in bucket))
            padded = widest * len(bucket[0].path) * (len(bucket) + 1)
        if not buckets or padded > MAX_PADDING * (real + cost):
            buckets.append([])
            real = 0
        buckets[-1].append(block)
        real += cost
    built = [_bucket(blocks, device) for blocks in buckets]
    nodes = np.concatenate([nodes for _, nodes in built])
    order = np.empty(len(pack.token_ids), dtype=np.int64)
    order[nodes[nodes >= 0]] = np.flatnonzero(nodes >= 0)
    return [bucket for bucket, _ in built], torch.from_numpy(order).to(device)


@dataclass(frozen=True)
class Variant:
    """The difference between a layer's attention and plain attention.

    `sinks` [heads]: a logit a head that takes part in the softmax and has no value (gpt-oss).
    """

    scaling: float | None
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None

    @property
    def is_fused(self) -> bool:
        """Returns True when PyTorch's fused kernel can compute it."""
        return self.softcap is None and self.sinks is None


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    trie_plan: Plan,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Takes query [1, heads, nodes, dim], key and value [1, kv heads, nodes, dim]; returns [1, nodes, heads, dim].

    The keys and values of a prefix come before those of the nodes.
    """
    trie_plan.check()
    if trie_plan.prefix is not None:
        if trie_plan.is_prefix:
            trie_plan.prefix.keep(module, key, value)
        else:
            before_key, before_value = trie_plan.prefix.of(module)
            key, value = torch.cat([before_key, key], dim=2), torch.cat([before_value, value], dim=2)
    window = sliding_window if sliding_window is not None and sliding_window < trie_plan.depth else None
    variant = Variant(scaling, window, softcap, s_aux)
    kernel = kernel_of(trie_plan, query, key, value, variant)
    if kernel == "flash":
        return _attend_flash(query, key, value, trie_plan, variant), None
    if kernel == "sdpa":
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        return out.transpose(1, 2), None
    if kernel == "flex":
        out = attend_flex(query, key, value, trie_plan.trie.mask(window), scaling, softcap, s_aux)
        return out.transpose(1, 2), None
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    is_long = trie_plan.pairs * query.shape[1] > KEPT_WEIGHTS and not _keeps_no_weights(query, variant)
    attend_bucket = partial(checkpoint, _attend_bucket, use_reentrant=False) if is_long else _attend_bucket
    outs = [attend_bucket(bucket, query, key, value, variant) for bucket in trie_plan.buckets]
    return torch.cat(outs).index_select(0, trie_plan.order).unsqueeze(0), None


def kernel_of(plan: Plan, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, variant: Variant) -> Kernel:
    """Chooses how a layer's attention is computed: by the pack, the layer's kind, the device and what is installed."""
    if plan.starts is not None and _flash_computes(query, key, value, variant):
        return "flash"
    if plan.is_chain and variant.is_fused and variant.window is None:
        return "sdpa"
    return "buckets" if plan.trie is None else "flex"


@cache
def has_flash() -> bool:
    return is_flash_attn_2_available()


def _flash_computes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, variant: Variant) -> bool:
    """Returns True when the installed kernel computes it. The self-check's float32 it does not compute."""
    is_half = query.dtype in (torch.bfloat16, torch.float16) and query.dtype == key.dtype == value.dtype
    one_width = query.shape[-1] == key.shape[-1] == value.shape[-1] <= 256
    return query.device.type == "cuda" and is_half and one_width and variant.sinks is None and has_flash()


def _attend_flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, plan: Plan, variant: Variant
) -> torch.Tensor:
    """Takes what `attend` takes and returns [1, nodes, heads, dim]. Sequences are parts of one long one (varlen)."""
    return _flash_attention_forward(
        *(states.transpose(1, 2) for states in (query, key, value)),
        None,
        query_length=query.shape[2],
        is_causal=True,
        softmax_scale=variant.scaling,
        sliding_window=variant.window,
        softcap=variant.softcap,
        deterministic=True,
        cu_seq_lens_q=plan.starts,
        cu_seq_lens_k=plan.starts,
        max_length_q=plan.depth,
        max_length_k=plan.depth,
        attn_implementation="flash_attention_2",
    )


def _attend_bucket(
    bucket: Bucket, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, variant: Variant
) -> torch.Tensor:
    """Takes query [nodes, heads, dim], key and value [prefix + nodes, kv heads, dim]; returns [B * L, heads, dim]."""
    q = query.index_select(0, bucket.queries).unflatten(0, (bucket.blocks, -1)).transpose(1, 2)
    k = key.index_select(0, bucket.keys).unflatten(0, (bucket.blocks, -1)).transpose(1, 2)
    v = value.index_select(0, bucket.keys).unflatten(0, (bucket.blocks, -1)).transpose(1, 2)
    depths = bucket.depths[:, None, :, None]
    places = torch.arange(k.shape[2], device=k.device)
    visible = places <= depths
    if variant.window is not None:
        visible &= places > depths - variant.window
    if not _keeps_no_weights(q, variant):
        out = _matmul_attention(q, k, v, visible, variant)
    else:
        out = scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=variant.scaling, enable_gqa=True)
    return out.transpose(1, 2).flatten(0, 1)


def _keeps_no_weights(query: torch.Tensor, variant: Variant) -> bool:
    """Returns True when PyTorch's fused kernel computes it, which computes the weights again in its backward pass."""
    return query.device.type != "cpu" and variant.is_fused


def _matmul_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, variant: Variant
) -> torch.Tensor:
    """Computes attention in plain products. On a CPU their backward pass is 3 times as fast as the fused kernel's."""
    blocks, heads, length, width = q.shape
    batch = blocks * k.shape[1]
    scaling = width**-0.5 if variant.scaling is None else variant.scaling
    hidden = torch.zeros(visible.shape, dtype=q.dtype, device=q.device).masked_fill_(~visible, HIDDEN)
    hidden = hidden.expand(-1, heads, -1, -1).reshape(batch, -1, k.shape[2])
    queries = q.reshape(batch, -1, width)
    keys = k.reshape(batch, -1, width).transpose(1, 2)
    if variant.softcap is None:
        scores = torch.baddbmm(hidden, queries, keys, alpha=scaling)
    else:
        scores = hidden + variant.softcap * torch.tanh(torch.bmm(queries, keys) * (scaling / variant.softcap))
    if variant.sinks is not None:
        sinks = variant.sinks.to(q.dtype)[None, :, None, None].expand(blocks, -1, length, -1)
        scores = torch.cat([scores, sinks.reshape(batch, -1, 1)], dim=-1)
    weights = scores.softmax(-1)[..., : k.shape[2]]
    return torch.bmm(weights, v.reshape(batch, -1, v.shape[-1])).view(blocks, heads, length, v.shape[-1])


def register() -> str:
    """Registers `attend` with transformers and returns the name to load a model with."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, lambda *args, **kwargs: None)
    return NAME
