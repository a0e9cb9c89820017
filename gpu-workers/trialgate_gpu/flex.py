"""Computes attention over a token trie with PyTorch's FlexAttention, whose kernels for GPUs skip what is not visible.

Nodes are in preorder: those that see node j are j itself and its descendants, which come right after it. So key j is
visible to query i if j <= i < ends[j], and two integers a key describe any trie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

# The kernels compute or skip blocks of so many queries and keys.
BLOCK = 128
# The kernel for short queries has no backward pass.
KERNEL_OPTIONS = {"FORCE_USE_FLEX_ATTENTION": True}


def subtree_ends(depths: np.ndarray) -> np.ndarray:
    """Returns for each node the first node after it that is not its descendant. Nodes are in preorder."""
    ends = np.full(len(depths), len(depths))
    path: list[int] = []
    for node, depth in enumerate(depths.tolist()):
        while path and depths[path[-1]] >= depth:
            ends[path.pop()] = node
        path.append(node)
    return ends


class FlexTrie:
    """Has the masks of one pack. The first keys are the `before` tokens of the prefix, visible to every query.

    `depths` [nodes] counts the prefix; key n < `before` has depth n.
    """

    def __init__(self, depths: np.ndarray, before: int, device: torch.device) -> None:
        self.device = device
        self.query_depths = depths
        self.key_depths = np.concatenate([np.arange(before), depths])
        # Key j is visible to the queries first[j] <= i < end[j].
        self.first = np.concatenate([np.zeros(before, np.int64), np.arange(len(depths))])
        self.end = np.concatenate([np.full(before, len(depths)), subtree_ends(depths)])
        self._masks: dict[int | None, BlockMask] = {}

    def mask(self, window: int | None) -> BlockMask:
        """Returns the mask of layers in which a token sees its last `window` keys, or all when None."""
        if window not in self._masks:
            partial, full = self._blocks(window)
            self._masks[window] = BlockMask.from_kv_blocks(
                *_as_lists(partial, self.device),
                *_as_lists(full, self.device),
                BLOCK_SIZE=BLOCK,
                mask_mod=self._visible(window),
                seq_lengths=(len(self.query_depths), len(self.key_depths)),
            )
        return self._masks[window]

    def _visible(self, window: int | None) -> Callable[..., torch.Tensor]:
        first, end, key_depths, query_depths = (
            torch.from_numpy(each.astype(np.int32)).to(self.device)
            for each in (self.first, self.end, self.key_depths, self.query_depths)
        )

        def in_subtree(_batch: torch.Tensor, _head: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return (first[k] <= q) & (q < end[k])

        def in_window(batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return in_subtree(batch, head, q, k) & (query_depths[q] - key_depths[k] < window)

        return in_subtree if window is None else in_window

    def _blocks(self, window: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Returns which [query blocks, key blocks] are visible in part, and which entirely.

        Counts intervals by their ends: that takes time for each token and each block, not for each pair of tokens.
        """
        queries, keys = (-(-len(each) // BLOCK) for each in (self.query_depths, self.key_depths))
        block_of_key = np.arange(len(self.first)) // BLOCK
        some, whole = np.zeros((2, queries + 1, keys), np.int64)
        np.add.at(some, (self.first // BLOCK, block_of_key), 1)
        np.add.at(some, ((self.end - 1) // BLOCK + 1, block_of_key), -1)
        from_block, to_block = -(-self.first // BLOCK), self.end // BLOCK
        spans = from_block < to_block
        np.add.at(whole, (from_block[spans], block_of_key[spans]), 1)
        np.add.at(whole, (to_block[spans], block_of_key[spans]), -1)
        visible = some.cumsum(0)[:queries] > 0
        full = whole.cumsum(0)[:queries] == BLOCK
        if window is not None:
            (least_query, most_query), (least_key, most_key) = map(_by_block, (self.query_depths, self.key_depths))
            visible &= least_query[:, None] - most_key < window
            full &= most_query[:, None] - least_key < window
        return visible & ~full, full


def _by_block(depths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the smallest and the largest depth of each block."""
    starts = np.arange(0, len(depths), BLOCK)
    return np.minimum.reduceat(depths, starts), np.maximum.reduceat(depths, starts)


def _as_lists(blocks: np.ndarray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns how many key blocks each query block has, and their numbers first: [1, 1, queries (, keys)]."""
    order = np.argsort(~blocks, axis=1, kind="stable").astype(np.int32)
    counts = blocks.sum(1).astype(np.int32)
    return tuple(torch.from_numpy(each)[None, None].to(device) for each in (counts, order))


@cache
def compiled() -> Callable[..., torch.Tensor]:
    return torch.compile(flex_attention)


def attend_flex(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: BlockMask,
    scaling: float | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Takes query [1, heads, nodes, dim], key and value [1, kv heads, keys, dim]; returns [1, heads, nodes, dim]."""
    # A plain number in `capped` would become part of the compiled code.
    cap = torch.full((), softcap or 0.0, device=query.device)

    def capped(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return cap * torch.tanh(score / cap)

    # Without a compiled kernel, which a CPU lacks for training, PyTorch computes the same from its definition.
    compute = flex_attention if query.device.type == "cpu" else compiled()
    out, aux = compute(
        query,
        key,
        value,
        score_mod=None if softcap is None else capped,
        block_mask=mask,
        scale=scaling,
        enable_gqa=True,
        kernel_options=KERNEL_OPTIONS,
        return_aux=AuxRequest(lse=True),
    )
    if sinks is None:
        return out
    # A sink takes its share of the softmax and has no value: what is left is exp(lse) / (exp(lse) + exp(sink)).
    left = torch.sigmoid(aux.lse - sinks.float()[None, :, None])
    return out * left[..., None].to(out.dtype)
