"""Holds the experts that an engine chose for the tokens of a mixture, and reads them from a batch.

An engine returns them with each call: rows of [layers, experts a token], one for each token that its layers have read
(`routed_experts`). Its layers are all of the model's: rows of layers without experts have no meaning.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib import format as npy

# The integers of each form whose bytes have no header.
PLAIN = {"uint8": "<u1", "uint16": "<u2", "int32": "<i4"}


@dataclass(frozen=True)
class RecordedRows:
    """The rows that one call recorded for the tokens [start, end) of its sample."""

    start: int
    end: int
    form: str
    rows: bytes


@dataclass(frozen=True)
class Mixture:
    """What a row of a model has. `routed` are the layers with experts."""

    layers: int
    routed: tuple[int, ...]
    experts: int
    top_k: int

    @property
    def dtype(self) -> np.dtype:
        """The smallest integers that PyTorch computes with everywhere."""
        return np.dtype(np.uint8 if self.experts <= 256 else np.int16)


@dataclass(frozen=True)
class Routing:
    """`experts` is [tokens, routed layers, experts a token]. It counts where `known` [tokens] is True."""

    experts: np.ndarray
    known: np.ndarray

    def __getitem__(self, tokens: slice) -> Routing:
        return Routing(self.experts[tokens], self.known[tokens])

    @staticmethod
    def joined(parts: Sequence[Routing]) -> Routing:
        return Routing(np.concatenate([each.experts for each in parts]), np.concatenate([each.known for each in parts]))


def read_routing(recorded: Sequence[RecordedRows], tokens: int, mixture: Mixture) -> tuple[Routing, int]:
    """Returns the routing of a sample's first `tokens` tokens, and how many calls were left out.

    `recorded` has its calls in their order. One with another number of rows than tokens is left out: nothing says which
    tokens its rows are of.

    Where two calls have a row for one token, the first one counts: a call samples only tokens that no call before it
    has, so it is the one that sampled the token, if any did. A row that names an expert twice, or has only
    zeros, is none: engines leave zeros where they know nothing.

    Raises `ValueError` for rows that are not of this model.
    """
    experts = np.zeros((tokens, len(mixture.routed), mixture.top_k), mixture.dtype)
    known = np.zeros(tokens, bool)
    left_out = 0
    for each in recorded:
        rows = _rows(each, mixture)
        if len(rows) != each.end - each.start:
            left_out += 1
            continue
        places = np.arange(each.start, min(each.end, tokens))
        new = places[~known[places]]
        experts[new] = rows[new - each.start]
        ordered = np.sort(experts[new], axis=-1)
        known[new] = (ordered[..., 1:] != ordered[..., :-1]).all((1, 2)) & ordered.any((1, 2))
    return Routing(experts, known), left_out


def _rows(recorded: RecordedRows, mixture: Mixture) -> np.ndarray:
    """Returns [rows, routed layers, experts a token]."""
    of_a_row = (mixture.layers, mixture.top_k)
    if recorded.form == "npy":
        found = _read_npy(recorded.rows)
    elif recorded.form in PLAIN:
        found = np.frombuffer(recorded.rows, PLAIN[recorded.form])
        if found.size % np.prod(of_a_row) == 0:
            found = found.reshape(-1, *of_a_row)
    else:
        raise ValueError(f"they have the unknown form {recorded.form!r}")
    if recorded.start < 0 or found.shape[1:] != of_a_row or found.dtype.kind not in "iu":
        expected = [recorded.end - recorded.start, *of_a_row]
        what = f"{found.dtype} {list(found.shape)} instead of integers {expected}"
        raise ValueError(f"they are {what}, which is [tokens, layers, experts a token]")
    rows = found[:, mixture.routed]
    if rows.size and (rows.min() < 0 or rows.max() >= mixture.experts):
        worst = int(rows.max() if rows.max() >= mixture.experts else rows.min())
        raise ValueError(f"they name expert {worst}, and the model has {mixture.experts}")
    return rows.astype(mixture.dtype)


def _read_npy(payload: bytes) -> np.ndarray:
    """Reads NumPy's file without a copy, and allocates nothing that its header claims. Raises `ValueError` alone."""
    try:
        return _parse_npy(payload)
    except ValueError:
        raise
    except Exception as error:
        # NumPy's parser fails in many ways on a header that no engine writes.
        raise ValueError(f"they are no file of NumPy's ({type(error).__name__}: {error})") from error


def _parse_npy(payload: bytes) -> np.ndarray:
    file = io.BytesIO(payload)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(file)
    if version not in readers:
        raise ValueError(f"they are NumPy's file of version {version}")
    shape, is_fortran, dtype = readers[version](file)
    if is_fortran:
        raise ValueError("their last axis is not the innermost one")
    return np.frombuffer(payload, dtype, offset=file.tell()).reshape(shape)
