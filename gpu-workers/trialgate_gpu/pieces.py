"""Cuts a token trie into pieces for layers that keep a state, each of which such a layer computes in one call.

A piece is a chain of nodes of which only the last has branches, so that the state at its end is what each piece after
it begins with. The pieces that nothing follows are the replies of a group, mostly: they are computed together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

MAX_PADDING = 1.4
PREFIX = -1
# With a state, layers compute a single token as engines do: they overwrite the state, which no gradient survives.
LEAST_TOKENS = 2


@dataclass(frozen=True)
class Call:
    """Some pieces, padded to L tokens. `nodes` [pieces, L] are those of each piece; its last one fills the rest.

    `before` has for each piece the call whose state it begins with, or `PREFIX`. It is None for pieces that begin
    without a state. `is_kept` says that other pieces begin with this one's state.
    """

    nodes: torch.Tensor
    before: tuple[int, ...] | None
    is_kept: bool


@dataclass(frozen=True)
class Pieces:
    """The calls in the order in which a layer makes them. `order` puts their outputs into node order."""

    calls: list[Call]
    order: torch.Tensor


@dataclass
class _Piece:
    nodes: np.ndarray
    before: int | None
    is_kept: bool = field(default=False)


def cut(depths: np.ndarray, device: torch.device, *, has_prefix: bool, keep: bool = False) -> Pieces:
    """Cuts the trie whose nodes have these depths, in preorder. `keep` keeps the state of a trie that is one chain."""
    pieces = _joined(_pieces(depths))
    inner = [number for number, piece in enumerate(pieces) if piece.is_kept]
    call_of = {number: call for call, number in enumerate(inner)} | {None: PREFIX if has_prefix else None}
    rows = [[pieces[number]] for number in inner]
    rows += _bucketed([piece for piece in pieces if not piece.is_kept])
    calls, nodes, places = [], [], []
    made = 0
    for row in rows:
        is_kept = row[0].is_kept or keep
        longest = max(len(row[0].nodes), 0 if is_kept else LEAST_TOKENS)
        padded = np.stack([np.pad(piece.nodes, (0, longest - len(piece.nodes)), mode="edge") for piece in row])
        before = tuple(call_of[piece.before] for piece in row)
        calls.append(Call(torch.from_numpy(padded).to(device), None if before[0] is None else before, is_kept))
        nodes += [piece.nodes for piece in row]
        places += [made + longest * number + np.arange(len(piece.nodes)) for number, piece in enumerate(row)]
        made += padded.size
    order = np.empty(len(depths), np.int64)
    # A node in several calls has the same output in each.
    order[np.concatenate(nodes)] = np.concatenate(places)
    return Pieces(calls, torch.from_numpy(order).to(device))


def _pieces(depths: np.ndarray) -> list[_Piece]:
    """Returns the pieces in preorder; `before` is a piece."""
    starts = np.flatnonzero(np.diff(depths, prepend=-2) != 1).tolist()
    parents: dict[int, int | None] = {}
    path: list[int] = []
    for start in starts:
        while path and depths[path[-1]] >= depths[start]:
            path.pop()
        parents[start] = path[-1] + int(depths[start] - depths[path[-1]]) - 1 if path else None
        path.append(start)
    cuts = sorted({*starts, *(parent + 1 for parent in parents.values() if parent is not None)})
    ends = [*cuts[1:], len(depths)]
    piece_at = {end - 1: number for number, end in enumerate(ends)}
    pieces: list[_Piece] = []
    for start, end in zip(cuts, ends, strict=True):
        before = piece_at.get(parents.get(start, start - 1))
        if before is not None:
            pieces[before].is_kept = True
        pieces.append(_Piece(np.arange(start, end), before))
    return pieces


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """Puts a piece of one token, whose state others need, before each of those instead (`LEAST_TOKENS`)."""
    made: list[_Piece] = []
    number_of: dict[int | None, int | None] = {None: None}
    single: dict[int, _Piece] = {}
    for number, piece in enumerate(pieces):
        if piece.before in single:
            first = single[piece.before]
            new = _Piece(np.concatenate([first.nodes, piece.nodes]), first.before, piece.is_kept)
        else:
            new = _Piece(piece.nodes, number_of[piece.before], piece.is_kept)
        if new.is_kept and len(new.nodes) < LEAST_TOKENS:
            single[number] = new
        else:
            number_of[number] = len(made)
            made.append(new)
    return made


def _bucketed(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Returns pieces of similar length together, and those that begin with a state apart from those that do not."""
    buckets: list[list[_Piece]] = []
    real = 0
    for piece in sorted(pieces, key=lambda each: (each.before is None, -len(each.nodes))):
        size = len(piece.nodes)
        bucket = buckets[-1] if buckets else []
        fits = bool(bucket) and len(bucket[0].nodes) * (len(bucket) + 1) <= MAX_PADDING * (real + size)
        if not fits or (bucket[0].before is None) != (piece.before is None):
            buckets.append([])
            real = 0
        buckets[-1].append(piece)
        real += size
    return buckets
