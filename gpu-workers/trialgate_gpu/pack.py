"""Packs samples into token tries, so that a prefix shared by many samples is computed once.

The samples are sorted. Each adds to the trie only the tokens after what it shares with the sample before it. The keys
of a node are its ancestors, so its hidden state is exactly the one that it has in its own sequence. A sequence's last
token predicts nothing and is left out.

Sequences of one prompt that do not fit into one pack still share the prompt: it is the `prefix` of their packs and is
computed once before them (`prefix.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .routing import Routing

QUERY_BLOCK = 128
LEAST_PREFIX = 8
# A sequence that shares less than this part of the family's prefix begins a new family. Sequences of two prompts often
# share only a system prompt.
LEAST_PART = 0.8

# For each token, the ids that could be sampled, in ascending order. None means all ids.
SamplingMask = list[np.ndarray | None]


@dataclass(frozen=True)
class Chain:
    """The tokens of a sample up to its last trained one. `predictors[i]` is the token that predicts `targets[i]`.

    `routing` has the experts that the pass of `inputs` replays, or is None.
    """

    sample: int
    inputs: np.ndarray
    predictors: np.ndarray
    targets: np.ndarray
    rollout_logprobs: np.ndarray
    temperature: float
    advantages: np.ndarray
    sampling_mask: SamplingMask | None = None
    routing: Routing | None = None


@dataclass(frozen=True)
class Block:
    """Consecutive new nodes [start, start + length). Their keys are `path`: from the root to the last of them.

    The tokens of the prefix are the first keys: node n is key len(prefix) + n.
    """

    start: int
    length: int
    path: np.ndarray


@dataclass(frozen=True)
class Pack:
    """A trie in the order in which its nodes are computed, and its trained tokens ([tokens] arrays).

    `prefix` has the tokens that come before every root and are not nodes of this pack. Packs of one family have the
    identical array object. `routing` is that of the nodes, `prefix_routing` that of the prefix.
    """

    token_ids: np.ndarray
    depths: np.ndarray
    blocks: list[Block]
    nodes: np.ndarray
    targets: np.ndarray
    rollout_logprobs: np.ndarray
    temperatures: np.ndarray
    advantages: np.ndarray
    samples: np.ndarray
    sampling_mask: SamplingMask | None = None
    prefix: np.ndarray | None = None
    routing: Routing | None = None
    prefix_routing: Routing | None = None

    @property
    def is_chain(self) -> bool:
        """True when its tokens are one sequence from the first token."""
        return self.prefix is None and bool(self.depths[-1] == len(self.depths) - 1)

    @property
    def starts(self) -> np.ndarray | None:
        """Returns the first node of each sequence, and the number of nodes. None: some sequences share a node."""
        begins = self.depths == 0
        goes_on = np.diff(self.depths, prepend=-1) == 1
        if self.prefix is not None or not (begins | goes_on).all():
            return None
        return np.append(np.flatnonzero(begins), len(self.depths))

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (node of each row, temperature of each row, row of each trained token). A row has its logits once."""
        keys = np.stack([self.nodes.astype(np.float64), self.temperatures.astype(np.float64), self._mask_numbers])
        unique, row_of_token = np.unique(keys, axis=1, return_inverse=True)
        return unique[0].astype(np.int64), unique[1].astype(np.float32), row_of_token.reshape(-1)

    @cached_property
    def _mask_numbers(self) -> np.ndarray:
        """Returns [tokens]. Values are equal where the sampling masks are equal, and 0 means no mask."""
        numbers: dict[bytes, int] = {}
        masks = self.sampling_mask or [None] * len(self.targets)
        return np.array(
            [0 if ids is None else numbers.setdefault(ids.tobytes(), len(numbers) + 1) for ids in masks], np.float64
        )

    @cached_property
    def row_masks(self) -> dict[int, np.ndarray]:
        """Returns the sampling mask of each row that has one."""
        rows = self.rows[2].tolist()
        return {row: ids for row, ids in zip(rows, self.sampling_mask or [], strict=False) if ids is not None}


def chain(
    sample: int,
    token_ids: np.ndarray,
    loss_mask: np.ndarray,
    rollout_logprobs: np.ndarray,
    temperature: float,
    sampling_mask: SamplingMask | None = None,
    advantages: np.ndarray | None = None,
) -> Chain:
    """Makes a chain without the tokens after the last trained one, which have no loss.

    Every array has one entry a token, except `advantages`: it is [trained tokens], or None when only log-probabilities
    are needed.
    """
    trained = np.flatnonzero(loss_mask)
    masks = None if sampling_mask is None else [sampling_mask[i] for i in trained]
    inputs = token_ids[: trained[-1]]
    adv = np.zeros(len(trained)) if advantages is None else advantages
    return Chain(sample, inputs, trained - 1, token_ids[trained], rollout_logprobs[trained], temperature, adv, masks)


def shared_prefix(a: np.ndarray, b: np.ndarray) -> int:
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if len(different) else length


@dataclass
class Family:
    """Consecutive chains of the sorted order, each with the number of tokens that it shares with the one before it.

    The first `prefix` tokens are the same in all of them and predict no trained token; `size` counts distinct tokens.
    """

    chains: list[tuple[Chain, int]]
    prefix: int
    size: int


def _families(chains: list[Chain]) -> list[Family]:
    found: list[Family] = []
    for item in sorted(chains, key=lambda c: (c.inputs.tolist(), c.sample)):
        free = int(item.predictors[0])
        if found:
            family = found[-1]
            shared = shared_prefix(family.chains[-1][0].inputs, item.inputs)
            prefix = min(family.prefix, shared, free)
            if prefix >= max(LEAST_PREFIX, LEAST_PART * family.prefix):
                family.chains.append((item, shared))
                family.prefix = prefix
                family.size += len(item.inputs) - shared
                continue
        found.append(Family([(item, 0)], free, len(item.inputs)))
    return found


def distinct_spans(chains: list[Chain]) -> list[tuple[int, int]]:
    """Returns for each chain, in sorted order, the depths [first, end) of the tokens that no chain before it has."""
    spans, before = [], np.empty(0, np.int64)
    for inputs in sorted((c.inputs for c in chains), key=lambda each: each.tolist()):
        spans.append((shared_prefix(before, inputs), len(inputs)))
        before = inputs
    return spans


def distinct_tokens(chains: list[Chain]) -> int:
    """Returns the size of all families. A prefix that is too short for one family counts once in each that has it."""
    return sum(family.size for family in _families(chains))


def make_packs(chains: list[Chain], max_tokens: int) -> Iterator[Pack]:
    """Packs greedily in sorted order. A pack exceeds `max_tokens` only if one sequence without its prefix does."""
    waiting: list[tuple[Chain, int]] = []
    size = 0
    for family in _families(chains):
        first = family.chains[0][0]
        shared = shared_prefix(waiting[-1][0].inputs, first.inputs) if waiting else 0
        if waiting and size + family.size - shared > max_tokens:
            yield _build(waiting)
            waiting, size, shared = [], 0, 0
        if family.size > max_tokens and len(family.chains) > 1:
            yield from _split(family, max_tokens)
        else:
            waiting += [(first, shared), *family.chains[1:]]
            size += family.size - shared
    if waiting:
        yield _build(waiting)


def _split(family: Family, max_tokens: int) -> Iterator[Pack]:
    prefix = family.chains[0][0].inputs[: family.prefix]
    waiting: list[tuple[Chain, int]] = []
    size = 0
    for item, shared in family.chains:
        new = len(item.inputs) - max(shared, family.prefix)
        if waiting and size + new > max_tokens:
            yield _build(waiting, prefix)
            waiting, size, shared = [], 0, 0
            new = len(item.inputs) - family.prefix
        waiting.append((item, shared))
        size += new
    yield _build(waiting, prefix)


def _build(chains: list[tuple[Chain, int]], prefix: np.ndarray | None = None) -> Pack:
    """Builds a pack. `chains` has each chain with the number of tokens shared with the one before, prefix included."""
    before = 0 if prefix is None else len(prefix)
    first = chains[0][0]
    tokens: list[np.ndarray] = []
    routings: list[Routing] = []
    depths: list[np.ndarray] = []
    blocks: list[Block] = []
    trained: list[tuple[np.ndarray, Chain]] = []
    # The keys from the root to the newest token. The prefix's keys stay.
    path = np.arange(before)
    count = 0
    for item, in_common in chains:
        shared = max(in_common, before)
        new = item.inputs[shared:]
        path = np.concatenate([path[:shared], np.arange(before + count, before + count + len(new))])
        tokens.append(new)
        if item.routing is not None:
            routings.append(item.routing[shared:])
        depths.append(np.arange(shared, shared + len(new)))
        for offset in range(0, len(new), QUERY_BLOCK):
            length = min(QUERY_BLOCK, len(new) - offset)
            blocks.append(Block(count + offset, length, path[: shared + offset + length]))
        count += len(new)
        trained.append((path[item.predictors] - before, item))
    return Pack(
        np.concatenate(tokens),
        np.concatenate(depths),
        blocks,
        np.concatenate([nodes for nodes, _ in trained]),
        np.concatenate([c.targets for _, c in trained]),
        np.concatenate([c.rollout_logprobs for _, c in trained]),
        np.concatenate([np.full(len(c.targets), c.temperature, np.float32) for _, c in trained]),
        np.concatenate([c.advantages for _, c in trained]),
        np.concatenate([np.full(len(c.targets), c.sample) for _, c in trained]),
        _joined_masks([c for _, c in trained]),
        prefix,
        Routing.joined(routings) if routings else None,
        first.routing[:before] if prefix is not None and first.routing is not None else None,
    )


def untrained_pack(tokens: np.ndarray, routing: Routing | None = None) -> Pack:
    """Returns a pack of one sequence that predicts nothing."""
    nothing = np.empty(0, np.int64)
    alone = Chain(0, tokens, nothing, nothing, np.empty(0, np.float32), 1.0, np.empty(0), routing=routing)
    return _build([(alone, 0)])


def _joined_masks(chains: list[Chain]) -> SamplingMask | None:
    if all(c.sampling_mask is None for c in chains):
        return None
    return [ids for c in chains for ids in c.sampling_mask or [None] * len(c.targets)]
