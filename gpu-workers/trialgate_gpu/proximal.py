"""Computes the old log-probabilities: those of the trained tokens under the step's starting weights (pi_prox).

The first update begins at these weights, so its own forward pass gives the values of its samples. Only the samples of
later updates need a separate pass.
"""

from __future__ import annotations

import numpy as np
import torch

from .head import token_logprobs
from .pack import Chain, Pack, make_packs
from .policy import Policy
from .prefix import Prefixes
from .progress import Progress


class Proximal:
    """Keeps one float32 for each trained token, by sample."""

    def __init__(self) -> None:
        self._of_sample: dict[int, np.ndarray] = {}
        self.computed = 0

    def measure(self, policy: Policy, chains: list[Chain], pack_tokens: int, progress: Progress) -> None:
        """Computes the values of `chains` in a forward pass without a graph."""
        packs = list(make_packs(chains, pack_tokens))
        prefixes = Prefixes()
        for number, pack in enumerate(packs):
            progress.show("proximal", pack=number + 1, packs=len(packs), tokens=self.computed)
            with progress.timed("proximal"):
                self.keep(pack, token_logprobs(policy.infer(pack, prefixes), policy.head, pack))
            self.computed += len(pack.token_ids)
        self.computed += prefixes.computed

    def keep(self, pack: Pack, logprobs: torch.Tensor) -> None:
        """Keeps `logprobs` [tokens of the pack]."""
        starts = np.flatnonzero(np.diff(pack.samples, prepend=-1))
        pieces = np.split(logprobs.cpu().numpy(), starts[1:])
        self._of_sample |= zip(pack.samples[starts].tolist(), pieces, strict=True)

    def of(self, pack: Pack) -> torch.Tensor:
        """Returns [tokens of the pack], on the CPU."""
        starts = np.flatnonzero(np.diff(pack.samples, prepend=-1))
        return self.of_samples(pack.samples[starts].tolist())

    def of_samples(self, samples: list[int]) -> torch.Tensor:
        """Returns [trained tokens of `samples`, one sample after the other], on the CPU."""
        return torch.from_numpy(np.concatenate([self._of_sample[s] for s in samples]))
