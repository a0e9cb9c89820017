"""Attention over a token trie, as one of transformers' attention implementations (`trialgate_trie`).

A node's ancestors ordered by depth are its keys, so key j of a block is visible to a query at depth d iff j <= d.
Blocks of similar size share one batched call. The usual alternative, a dense [nodes, nodes] mask, costs several times
as much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .errors import GpuWorkerError
from .pack import Block, Pack

NAME = "trialgate_trie"
MAX_PADDING = 1.4
HIDDEN = -1e30


@dataclass(frozen=True)
class Bucket:
    """B blocks padded to L queries and K keys: node of each query [B * L] and key [B * K], query depths [B, L]."""

    blocks: int
    queries: torch.Tensor
    keys: torch.Tensor
    depths: torch.Tensor


@dataclass(frozen=True)
class Plan:
    """`order` puts the buckets' outputs in node order; it is null when the pack is one chain: then attention is
    plainly causal.

    `check` is called once a layer and may raise, so that a step stops soon after its cancellation.
    """

    depth: int
    buckets: list[Bucket]
    order: torch.Tensor | None
    check: Callable[[], None]


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


def make_plan(pack: Pack, device: torch.device, check: Callable[[], None]) -> Plan:
    """Sorts the blocks by size and buckets them so that padding stays under `MAX_PADDING`."""
    depth = int(pack.depths.max()) + 1
    if pack.is_chain:
        return Plan(depth, [], None, check)
    buckets: list[list[Block]] = []
    real = padded = 0
    for block in sorted(pack.blocks, key=lambda b: (-len(b.path), -b.length, b.start)):
        cost = block.length * len(block.path)
        if buckets:
            members = buckets[-1]
            widest = max(block.length, max(b.length for b in members))
            padded = widest * len(members[0].path) * (len(members) + 1)
        if not buckets or padded > MAX_PADDING * (real + cost):
            buckets.append([])
            real = 0
        buckets[-1].append(block)
        real += cost
    built = [_bucket(blocks, device) for blocks in buckets]
    nodes = np.concatenate([nodes for _, nodes in built])
    order = np.empty(len(pack.token_ids), dtype=np.int64)
    order[nodes[nodes >= 0]] = np.flatnonzero(nodes >= 0)
    return Plan(depth, [bucket for bucket, _ in built], torch.from_numpy(order).to(device), check)


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
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, heads, nodes, dim], key and value [1, kv heads, nodes, dim] -> [1, nodes, heads, dim]."""
    trie_plan.check()
    if softcap is not None or (sliding_window is not None and sliding_window < trie_plan.depth):
        what = "attention soft-capping" if softcap is not None else f"a sliding window of {sliding_window} tokens"
        raise GpuWorkerError(
            "BadModel", f"a model with {what} cannot be trained on such sequences yet: choose another model"
        )
    if trie_plan.order is None:
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        return out.transpose(1, 2), None
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    outs = [_attend_bucket(bucket, query, key, value, scaling) for bucket in trie_plan.buckets]
    return torch.cat(outs).index_select(0, trie_plan.order).unsqueeze(0), None


def _attend_bucket(
    bucket: Bucket, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """[nodes, heads, dim] each -> [B * L, heads, dim]."""
    q = query.index_select(0, bucket.queries).unflatten(0, (bucket.blocks, -1)).transpose(1, 2)
    k = key.index_select(0, bucket.keys).unflatten(0, (bucket.blocks, -1)).transpose(1, 2)
    v = value.index_select(0, bucket.keys).unflatten(0, (bucket.blocks, -1)).transpose(1, 2)
    visible = torch.arange(k.shape[2], device=k.device) <= bucket.depths[:, None, :, None]
    if q.device.type == "cpu":
        out = _matmul_attention(q, k, v, visible, q.shape[-1] ** -0.5 if scaling is None else scaling)
    else:
        out = scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).flatten(0, 1)


def _matmul_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, scaling: float
) -> torch.Tensor:
    """The same in plain products: on a CPU its backward is 3 times as fast as the fused kernel's."""
    blocks, heads, length, width = q.shape
    batch = blocks * k.shape[1]
    hidden = torch.zeros(visible.shape, dtype=q.dtype).masked_fill_(~visible, HIDDEN)
    hidden = hidden.expand(-1, heads, -1, -1).reshape(batch, -1, k.shape[2])
    keys = k.reshape(batch, -1, width).transpose(1, 2)
    weights = torch.baddbmm(hidden, q.reshape(batch, -1, width), keys, alpha=scaling).softmax(-1)
    return torch.bmm(weights, v.reshape(batch, -1, width)).view(blocks, heads, length, width)


def register() -> str:
    """Makes `attend` known to transformers and returns the name to load a model with."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, lambda *args, **kwargs: None)
    return NAME
