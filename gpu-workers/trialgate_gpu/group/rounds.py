"""Divides the packs of an update over the ranks.

The packs of one prefix stay on one rank, because only its memory has the prefix. In a round each rank computes the
packs of one such unit. All ranks pass through the sharded modules equally often, because each pass exchanges weights
with the others. A rank that has nothing left takes part without tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, zip_longest

import torch

from ..pack import Chain, Pack, distinct_tokens, make_packs
from ..policy import Policy
from ..prefix import Prefixes
from .world import World

Unit = list[Pack]
# The matrices of a layer cost a token about as much as attention to this many keys does.
OTHER_KEYS = 2048


@dataclass(frozen=True)
class Round:
    """`packs` are this rank's; every rank takes `slots` passes, and one for a prefix if any rank has one."""

    packs: Unit
    slots: int
    has_prefix: bool


def units_of(packs: Iterable[Pack]) -> list[Unit]:
    """Returns the packs with a common prefix together, and every other pack alone."""
    grouped = groupby(enumerate(packs), key=lambda item: (id(item[1].prefix), item[0] if item[1].prefix is None else 0))
    return [[pack for _, pack in group] for _, group in grouped]


def cost(unit: Unit) -> int:
    """Returns tokens times the keys that each attends to, plus what a token costs in the rest of a layer."""
    pairs = sum(block.length * len(block.path) for pack in unit for block in pack.blocks)
    prefix = 0 if unit[0].prefix is None else len(unit[0].prefix)
    tokens = prefix + sum(len(pack.token_ids) for pack in unit)
    return pairs + prefix * prefix // 2 + OTHER_KEYS * tokens


def make_rounds(packs: Iterable[Pack], rank: int, size: int) -> list[Round]:
    """Returns the rounds of this rank. The most expensive unit goes first, to the rank with the least so far."""
    units = units_of(packs)
    if size > 1:
        units.sort(key=cost, reverse=True)
    of_rank: list[list[Unit]] = [[] for _ in range(size)]
    load = [0] * size
    for unit in units:
        least = load.index(min(load))
        of_rank[least].append(unit)
        load[least] += cost(unit)
    return [
        Round(together[rank], max(map(len, together)), any(unit and unit[0].prefix is not None for unit in together))
        for together in zip_longest(*of_rank, fillvalue=[])
    ]


def rounds_of(chains: list[Chain], pack_tokens: int, world: World) -> list[Round]:
    """Packs `chains` and divides the packs over the ranks. Packs are smaller if otherwise some rank had none."""
    if world.size > 1:
        pack_tokens = min(pack_tokens, -(-distinct_tokens(chains) // world.size))
    return make_rounds(make_packs(chains, pack_tokens), world.rank, world.size)


def passes_of(of_round: Round, policy: Policy, prefixes: Prefixes) -> Iterator[Pack | None]:
    """Yields this rank's packs of a round, then None for each pass that only other ranks need.

    A prefix of another rank is computed along, and ends with the round.
    """
    idle = None
    if of_round.has_prefix and not (of_round.packs and of_round.packs[0].prefix is not None):
        idle = policy.idle_prefix()
    yield from of_round.packs
    yield from [None] * (of_round.slots - len(of_round.packs))
    prefixes.end()
    if idle is not None and torch.is_grad_enabled():
        idle.backward()
