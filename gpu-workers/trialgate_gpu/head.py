"""Computes log-probabilities of chosen tokens, and their gradient, without holding all logits at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from .logit_shape import PLAIN, LogitShape
from .pack import Pack

CHUNK_ROWS = 512


class Head:
    """Computes logits: those of the output embedding, and then what the model does to them (`LogitShape`).

    With `in_float32` the output embedding computes in float32 from weights in bfloat16, as in vLLM with `head_dtype`
    float32. The product of two bfloat16 numbers is exact in float32, so only sums are rounded. The weights are the same
    as the engine's.
    """

    def __init__(self, linear: nn.Linear, shape: LogitShape = PLAIN, *, in_float32: bool = False) -> None:
        self.weight = linear.weight
        self.bias = linear.bias
        self.shape = shape
        self.in_float32 = in_float32

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns [rows, vocabulary], float32."""
        return self.shape.apply_(self._embedded(hidden).float())

    def _embedded(self, hidden: torch.Tensor) -> torch.Tensor:
        if not self.in_float32:
            return nn.functional.linear(hidden, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.float()
        if hidden.is_cuda and hidden.dtype == torch.bfloat16:
            logits = torch.mm(hidden, self.weight.t(), out_dtype=torch.float32)
            return logits if bias is None else logits.add_(bias)
        return nn.functional.linear(hidden.float(), self.weight.float(), bias)


# Takes (tokens of the pack, their log-probabilities) and returns a loss's derivative by each log-probability.
Slopes = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class HeadGradient(NamedTuple):
    """Sums of the gradients of the head's weight [vocabulary, width] and bias [vocabulary]."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None


def _chunks(pack: Pack, device: torch.device):
    """Yields (rows, their temperatures [rows, 1], kept ids, token order, row of each token in the chunk, targets)."""
    row_nodes, row_temperatures, row_of_token = pack.rows
    for start in range(0, len(row_nodes), CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, len(row_nodes))
        tokens = ((row_of_token >= start) & (row_of_token < stop)).nonzero()[0]
        yield (
            torch.from_numpy(row_nodes[start:stop]).to(device),
            torch.from_numpy(row_temperatures[start:stop]).to(device).unsqueeze(1),
            _kept(pack, start, stop, device),
            torch.from_numpy(tokens).to(device),
            torch.from_numpy(row_of_token[tokens] - start).to(device),
            torch.from_numpy(pack.targets[tokens]).to(device),
        )


def _kept(pack: Pack, start: int, stop: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Returns (row within the chunk, id) of every id that could be sampled in the rows that have a sampling mask."""
    masks = [(row - start, ids) for row, ids in pack.row_masks.items() if start <= row < stop]
    if not masks:
        return None
    rows = np.concatenate([np.full(len(ids), row) for row, ids in masks])
    ids = np.concatenate([ids for _, ids in masks])
    return torch.from_numpy(rows).to(device), torch.from_numpy(ids).to(device)


def _scaled_logits(
    hidden: torch.Tensor,
    head: Head,
    temperatures: torch.Tensor,
    kept: tuple[torch.Tensor, torch.Tensor] | None,
) -> torch.Tensor:
    """Returns [rows, vocabulary], float32, divided by the temperature as the engine does before it samples.

    Ids outside a row's sampling mask become -inf, so that the softmax is over the ids that could be sampled
    (DeepSeek-V3.2, arXiv:2512.02556, "Keep Sampling Mask").
    """
    logits = head(hidden).div_(temperatures)
    if kept is not None:
        values = logits[kept]
        logits[kept[0].unique()] = -torch.inf
        logits[kept] = values
    return logits


@torch.no_grad()
def token_logprobs(hidden: torch.Tensor, head: Head, pack: Pack) -> torch.Tensor:
    """Returns the log-probability of each trained token of the pack: [tokens], float32."""
    logprobs = torch.empty(len(pack.targets), device=hidden.device)
    for nodes, temperatures, kept, tokens, rows, targets in _chunks(pack, hidden.device):
        logits = _scaled_logits(hidden[nodes], head, temperatures, kept)
        logprobs[tokens] = logits[rows, targets] - logits.logsumexp(1)[rows]
    return logprobs


@torch.no_grad()
def backward_through_head(
    hidden: torch.Tensor,
    head: Head,
    pack: Pack,
    slopes: Slopes,
    gradient: HeadGradient | None,
    *,
    by_sequence: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a loss's gradient by `hidden` [nodes, width], and the entropy at each trained token [tokens].

    `slopes(tokens, logprobs)` gives the loss's derivative by each log-probability. As a policy-gradient loss is a sum
    over tokens, a token's derivative is known as soon as its log-probability is, so one pass over the logits does
    forward and backward: dL/dlogits = d (onehot - softmax) / temperature, and from there on through the head's own
    scale and cap. A loss `by_sequence` needs the others of the sequence too: `slopes` then gets all tokens of the pack
    at once, and the logits are computed twice. Adds dL/dweight and dL/dbias to `gradient`, unless the head is frozen
    (None).
    """
    hidden_gradient = torch.zeros_like(hidden)
    entropies = torch.empty(len(pack.targets), device=hidden.device)
    every = torch.arange(len(pack.targets), device=hidden.device)
    known = slopes(every, token_logprobs(hidden, head, pack)) if by_sequence else None
    for nodes, temperatures, kept, tokens, rows, targets in _chunks(pack, hidden.device):
        inputs = hidden[nodes]
        logits = _scaled_logits(inputs, head, temperatures, kept)
        total = logits.logsumexp(1)
        slope = slopes(tokens, logits[rows, targets] - total[rows]) if known is None else known[tokens]
        slope_of_row = torch.zeros_like(total).index_add_(0, rows, slope)
        logits.sub_(total.unsqueeze(1))
        d_logits = logits.exp()
        if kept is not None:
            logits.masked_fill_(logits == -torch.inf, 0.0)
        entropies[tokens] = -torch.linalg.vecdot(d_logits, logits)[rows]
        d_logits.mul_(-slope_of_row.unsqueeze(1))
        d_logits.index_put_((rows, targets), slope, accumulate=True)
        d_logits.div_(temperatures)
        if head.shape.cap is not None:
            # The capped logits again, in the memory that has them divided and shifted.
            logits.add_(total.unsqueeze(1)).mul_(temperatures)
        d_logits = head.shape.backward_(d_logits, logits).to(inputs.dtype)
        hidden_gradient.index_add_(0, nodes, d_logits @ head.weight)
        if gradient is None:
            continue
        gradient.weight.add_(d_logits.t() @ inputs)
        if gradient.bias is not None:
            gradient.bias.add_(d_logits.sum(0))
    return hidden_gradient, entropies
