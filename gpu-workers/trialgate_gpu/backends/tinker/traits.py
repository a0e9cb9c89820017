"""Measures what a server makes of a request's numbers, before a run relies on it.

Tinker's API says that a loss is the sum over tokens. SkyRL's JAX server divides each sequence's sum by the weights of
its tokens (at least 1e-9, which blows up where weights are negative) and the gradient by the number of sequences, and
it ignores `grad_clip_norm`. Neither shows in an answer, so a scratch model is trained on one token to see it: a token's
gradient and its negative, from sequences of different lengths, cancel out only where the server counts as assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import GpuWorkerError
from ...settings import Optim
from .messages import Datum
from .model import RemoteModel

# AdamW with so large an eps moves the weights by the gradient itself, so that effects are proportional to it.
PLAIN = Optim(lr=1.0, betas=(0.9, 0.999), eps=1.0, weight_decay=0.0, clip_grad=0.0)
CLIPPED = Optim(lr=1.0, betas=(0.9, 0.999), eps=1.0, weight_decay=0.0, clip_grad=1e-6)
LENGTH = 8
# bfloat16 may leave this much of a gradient that cancels out.
REMAINDER = 0.05
LEAST_EFFECT = 1e-5


@dataclass(frozen=True)
class Traits:
    """`by_sequence`: a sequence's loss is divided by its length, and the gradient by the number of sequences."""

    by_sequence: bool
    clips: bool

    @property
    def loss(self) -> str:
        """Returns the loss to ask for. One that multiplies advantages needs no weights, by which a server divides."""
        return "importance_sampling" if self.by_sequence else "cross_entropy"

    def with_slopes(
        self, data: Sequence[Datum], logprobs: Sequence[np.ndarray], slopes: Sequence[np.ndarray]
    ) -> list[Datum]:
        """Returns `data` with the numbers whose gradient is sum(slope x gradient of the log-probability)."""
        made = []
        for datum, logprob, slope in zip(data, logprobs, slopes, strict=True):
            targets = {"target_tokens": datum.inputs["target_tokens"]}
            if self.by_sequence:
                # The ratio to `logprobs` is 1 here, and so is its slope.
                scale = len(datum.tokens) * len(data)
                inputs = {"logprobs": logprob, "advantages": -slope * scale}
            else:
                inputs = {"weights": -slope}
            made.append(Datum(datum.tokens, targets | {n: v.astype(np.float32) for n, v in inputs.items()}))
        return made


def plain_datum(tokens: np.ndarray) -> Datum:
    """Returns a datum that predicts each token from those before it."""
    weights = np.ones(len(tokens) - 1, np.float32)
    return Datum(tokens[:-1], {"target_tokens": tokens[1:].astype(np.int64), "weights": weights})


def measure_traits(scratch: Callable[[], RemoteModel], token_ids: Sequence[int]) -> Traits:
    """Trains scratch models on the first of `token_ids`. Raises `GpuWorkerError` for a server that counts otherwise."""
    short, long = (plain_datum(np.array(token_ids[: length + 1])) for length in (LENGTH, 2 * LENGTH))

    def effect(traits: Traits, data: list[Datum], signs: list[float], optim: Optim) -> float:
        model = scratch()
        try:
            model.progress.show("measure the trainer server")
            before = model.logprobs(data, "measure the trainer server")
            slopes = [np.zeros(len(each)) for each in before]
            for slope, sign in zip(slopes, signs, strict=True):
                slope[LENGTH - 1] = -sign
            model.add_gradient(traits.with_slopes(data, before, slopes), traits.loss, "measure the trainer server")
            model.update(optim)
            (after, *_) = model.logprobs(data[:1], "measure the trainer server")
            return abs(float(after[LENGTH - 1]) - float(before[0][LENGTH - 1]))
        finally:
            model.unload()

    for by_sequence in (False, True):
        traits = Traits(by_sequence, clips=False)
        alone = effect(traits, [short], [1.0], PLAIN)
        against = effect(traits, [short, long], [1.0, -1.0], PLAIN)
        if alone > LEAST_EFFECT and against < REMAINDER * alone:
            clipped = effect(traits, [short], [1.0], CLIPPED)
            return Traits(by_sequence, clips=clipped < REMAINDER * alone)
    raise GpuWorkerError(
        "TrainerServerProtocol",
        "the trainer server sums the losses of tokens neither as Tinker's API says nor as SkyRL's JAX server does, "
        "or does not train at all: its gradients would be wrong; use a server that docs/trainers.md lists",
    )
