"""Packs samples into token tries, so that a prefix shared by many samples is computed once.

The samples are sorted; each adds to the trie only the tokens after what it shares with the sample before it. A node's
keys are its ancestors, so its hidden state is exactly the one it would have in its own sequence: this is no
approximation. A sequence's last token predicts nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

QUERY_BLOCK = 128

# For each token the ids that could be sampled, ascending; None: all ids.
SamplingMask = list[np.ndarray | None]


@dataclass(frozen=True)
class Chain:
    """Tokens and what is trained in them: entry i of `targets` etc. is predicted at token `predictors[i]`."""

    sample: int
    inputs: np.ndarray
    predictors: np.ndarray
    targets: np.ndarray
    old_logprobs: np.ndarray
    temperature: float
    sampling_mask: SamplingMask | None = None


@dataclass(frozen=True)
class Block:
    """A run of new nodes [start, start + length) whose keys are `path`: the nodes from the root to the last of them."""

    start: int
    length: int
    path: np.ndarray


@dataclass(frozen=True)
class Pack:
    """A trie in the order in which its nodes are computed, and its trained tokens ([tokens] arrays)."""

    token_ids: np.ndarray
    depths: np.ndarray
    blocks: list[Block]
    nodes: np.ndarray
    targets: np.ndarray
    old_logprobs: np.ndarray
    temperatures: np.ndarray
    samples: np.ndarray
    sampling_mask: SamplingMask | None = None

    @property
    def is_chain(self) -> bool:
        return bool(self.depths[-1] == len(self.depths) - 1)

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(node of each row, temperature of each row, row of each trained token): logits are computed once a row."""
        keys = np.stack([self.nodes.astype(np.float64), self.temperatures.astype(np.float64), self._mask_numbers])
        unique, row_of_token = np.unique(keys, axis=1, return_inverse=True)
        return unique[0].astype(np.int64), unique[1].astype(np.float32), row_of_token.reshape(-1)

    @cached_property
    def _mask_numbers(self) -> np.ndarray:
        """[tokens], equal where the sampling masks are; 0: none."""
        numbers: dict[bytes, int] = {}
        masks = self.sampling_mask or [None] * len(self.targets)
        return np.array(
            [0 if ids is None else numbers.setdefault(ids.tobytes(), len(numbers) + 1) for ids in masks], np.float64
        )

    @cached_property
    def row_masks(self) -> dict[int, np.ndarray]:
        """The sampling mask of each row that has one."""
        rows = self.rows[2].tolist()
        return {row: ids for row, ids in zip(rows, self.sampling_mask or [], strict=False) if ids is not None}


def chain(
    sample: int,
    token_ids: np.ndarray,
    loss_mask: np.ndarray,
    logprobs: np.ndarray,
    temperature: float,
    sampling_mask: SamplingMask | None = None,
) -> Chain:
    """Cuts what comes after the last trained token: nothing there is trained. All arguments have an entry a token."""
    trained = np.flatnonzero(loss_mask)
    masks = None if sampling_mask is None else [sampling_mask[i] for i in trained]
    inputs = token_ids[: trained[-1]]
    return Chain(sample, inputs, trained - 1, token_ids[trained], logprobs[trained], temperature, masks)


def shared_prefix(a: np.ndarray, b: np.ndarray) -> int:
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if len(different) else length


def make_packs(chains: list[Chain], max_tokens: int) -> Iterator[Pack]:
    """Greedy in sorted order. A pack exceeds `max_tokens` only if a single sequence does."""
    waiting: list[tuple[Chain, int]] = []
    size = 0
    for item in sorted(chains, key=lambda c: (c.inputs.tolist(), c.sample)):
        shared = shared_prefix(waiting[-1][0].inputs, item.inputs) if waiting else 0
        if waiting and size + len(item.inputs) - shared > max_tokens:
            yield _build(waiting)
            waiting, size, shared = [], 0, 0
        waiting.append((item, shared))
        size += len(item.inputs) - shared
    if waiting:
        yield _build(waiting)


def _build(members: list[tuple[Chain, int]]) -> Pack:
    tokens: list[np.ndarray] = []
    depths: list[np.ndarray] = []
    blocks: list[Block] = []
    trained: list[tuple[np.ndarray, Chain]] = []
    path = np.empty(0, dtype=np.int64)
    count = 0
    for item, shared in members:
        new = item.inputs[shared:]
        path = np.concatenate([path[:shared], np.arange(count, count + len(new))])
        tokens.append(new)
        depths.append(np.arange(shared, shared + len(new)))
        for offset in range(0, len(new), QUERY_BLOCK):
            length = min(QUERY_BLOCK, len(new) - offset)
            blocks.append(Block(count + offset, length, path[: shared + offset + length]))
        count += len(new)
        trained.append((path[item.predictors], item))
    return Pack(
        np.concatenate(tokens),
        np.concatenate(depths),
        blocks,
        np.concatenate([nodes for nodes, _ in trained]),
        np.concatenate([c.targets for _, c in trained]),
        np.concatenate([c.old_logprobs for _, c in trained]),
        np.concatenate([np.full(len(c.targets), c.temperature, np.float32) for _, c in trained]),
        np.concatenate([np.full(len(c.targets), c.sample) for _, c in trained]),
        _joined_masks([c for _, c in trained]),
    )


def _joined_masks(chains: list[Chain]) -> SamplingMask | None:
    if all(c.sampling_mask is None for c in chains):
        return None
    return [ids for c in chains for ids in c.sampling_mask or [None] * len(c.targets)]
