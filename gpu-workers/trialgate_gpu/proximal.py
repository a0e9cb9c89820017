"""Computes the old log-probabilities: those of the trained tokens under the step's starting weights (pi_prox).

The first update begins at these weights, so its own forward pass gives the values of its samples. Only the samples of
later updates need a separate pass.
"""

from __future__ import annotations

import numpy as np
import torch

from .group.rounds import passes_of, rounds_of
from .group.world import World
from .pack import Chain, Pack
from .policy import Policy
from .prefix import Prefixes
from .progress import Progress


class Proximal:
    """Keeps one float32 for each trained token, by sample."""

    def __init__(self) -> None:
        self._of_sample: dict[int, np.ndarray] = {}
        self.computed = 0

    def measure(
        self,
        policy: Policy,
        chains: list[Chain],
        pack_tokens: int,
        progress: Progress,
        world: World = World(),  # noqa: B008
    ) -> None:
        """Computes the values of `chains` in a forward pass without a graph, each rank those of its packs."""
        rounds = rounds_of(chains, pack_tokens, world)
        prefixes = Prefixes()
        done, packs = 0, sum(each.slots for each in rounds)
        with progress.timed("old_log_prob"), torch.no_grad():
            for each in rounds:
                for pack in passes_of(each, policy, prefixes):
                    done += 1
                    progress.show("proximal", pack=done, packs=packs, tokens=self.computed)
                    if pack is None:
                        policy.idle(backward=False)
                    else:
                        self.keep(pack, policy.logprobs(pack, prefixes))
                        self.computed += len(pack.token_ids)
        self.computed = int(world.sums([self.computed + prefixes.computed])[0])
        self.exchange(world)

    def exchange(self, world: World) -> None:
        """Gives every rank the values of all."""
        for values in world.gather(self._of_sample) if world.size > 1 else ():
            self._of_sample |= values

    def keep(self, pack: Pack, logprobs: torch.Tensor) -> None:
        """Keeps `logprobs` [tokens of the pack]."""
        starts = np.flatnonzero(np.diff(pack.samples, prepend=-1))
        pieces = np.split(logprobs.cpu().numpy(), starts[1:])
        self._of_sample |= zip(pack.samples[starts].tolist(), pieces, strict=True)

    def keep_sample(self, sample: int, logprobs: np.ndarray) -> None:
        """Keeps `logprobs` [trained tokens of the sample]."""
        self._of_sample[sample] = logprobs

    def of(self, pack: Pack) -> torch.Tensor:
        """Returns [tokens of the pack], on the CPU."""
        starts = np.flatnonzero(np.diff(pack.samples, prepend=-1))
        return self.of_samples(pack.samples[starts].tolist())

    def of_samples(self, samples: list[int]) -> torch.Tensor:
        """Returns [trained tokens of `samples`, one sample after the other], on the CPU."""
        return torch.from_numpy(np.concatenate([self._of_sample[s] for s in samples]))
