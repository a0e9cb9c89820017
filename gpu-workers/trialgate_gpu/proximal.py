"""Log-probabilities of the trained tokens under the step's starting weights (pi_prox), for steps with stale tokens.

The first update starts from these very weights, so its own forward pass gives those of its samples; only what later
updates train needs a pass of its own.
"""

from __future__ import annotations

import numpy as np
import torch

from .grpo_loss import MAX_LOG_RATIO, truncated_weight
from .head import token_logprobs
from .pack import Chain, Pack, make_packs
from .policy import Policy
from .progress import Progress


class Proximal:
    """One float32 a trained token, by sample."""

    def __init__(self) -> None:
        self._of_sample: dict[int, np.ndarray] = {}
        self.computed = 0

    def measure(self, policy: Policy, chains: list[Chain], pack_tokens: int, progress: Progress) -> None:
        """A forward pass without a graph."""
        packs = list(make_packs(chains, pack_tokens))
        for number, pack in enumerate(packs):
            progress.show("proximal", pack=number + 1, packs=len(packs), tokens=self.computed)
            with progress.timed("proximal"):
                self.keep(pack, token_logprobs(policy.infer(pack), policy.head, pack))
            self.computed += len(pack.token_ids)

    def keep(self, pack: Pack, logprobs: torch.Tensor) -> None:
        """`logprobs` [tokens of the pack]"""
        starts = np.flatnonzero(np.diff(pack.samples, prepend=-1))
        pieces = np.split(logprobs.cpu().numpy(), starts[1:])
        self._of_sample |= zip(pack.samples[starts].tolist(), pieces, strict=True)

    def of(self, pack: Pack) -> torch.Tensor:
        """[tokens of the pack], on the CPU"""
        starts = np.flatnonzero(np.diff(pack.samples, prepend=-1))
        return torch.from_numpy(np.concatenate([self._of_sample[s] for s in pack.samples[starts].tolist()]))

    def metrics(self, chains: list[Chain], threshold: float) -> dict[str, float]:
        """Over the trained tokens of `chains`, each once; named as verl names them (`rollout_corr_helper.py`).

        `kl` and `k3_kl` estimate KL(recorded || proximal). Steps without stale tokens have none of these.
        """
        recorded = torch.from_numpy(np.concatenate([c.old_logprobs for c in chains]))
        proximal = torch.from_numpy(np.concatenate([self._of_sample[c.sample] for c in chains]))
        weight = truncated_weight(proximal, recorded, threshold).double()
        log_ratio = proximal.double() - recorded.double()
        bounded = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        measured = {
            "rollout_is_mean": weight.mean(),
            "rollout_is_max": weight.max(),
            "rollout_is_min": weight.min(),
            "rollout_is_eff_sample_size": weight.mean().square() / weight.square().mean(),
            "rollout_is_ratio_fraction_high": (bounded.exp() > threshold).double().mean(),
            "kl": -log_ratio.mean(),
            "k3_kl": (bounded.exp() - 1 - bounded).mean(),
        }
        return {f"rollout_corr/{name}": float(value) for name, value in measured.items()} | {
            "tokens/proximal": self.computed
        }
