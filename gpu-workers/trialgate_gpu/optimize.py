"""The optimisation of one step: mini-batches of samples, packs within them, one AdamW update each."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch

from .checkpoint import TrainerState
from .grpo_loss import clipped_loss, token_weights
from .head import backward_through_head
from .pack import Pack, make_packs
from .policy import Policy
from .prepare import Prepared
from .progress import Progress
from .settings import TrainerSettings


def mini_batches(prepared: Prepared, settings: TrainerSettings, epoch: int) -> list[np.ndarray]:
    """Sample indices per update. Groups stay together as far as they fit; their order is drawn from the seed."""
    count = len(prepared.samples)
    if settings.ppo_mini_batch_size is None or settings.ppo_mini_batch_size >= count:
        return [np.arange(count)]
    groups: dict[str, list[int]] = defaultdict(list)
    for index, sample in enumerate(prepared.samples):
        groups[sample.group_id].append(index)
    order = np.random.default_rng([settings.seed, epoch]).permutation(len(groups))
    members = list(groups.values())
    shuffled = np.concatenate([members[i] for i in order])
    return [shuffled[i : i + settings.ppo_mini_batch_size] for i in range(0, count, settings.ppo_mini_batch_size)]


class Tally:
    """Sums over the trained tokens that were computed (those of samples with an advantage)."""

    def __init__(self) -> None:
        self.loss = self.clipped = self.kl = self.tokens = 0.0
        self.computed = 0
        self.norms: list[float] = []

    def metrics(self, passes: int) -> dict[str, float]:
        tokens = max(self.tokens, 1.0)
        return {
            "actor/pg_loss": self.loss / max(passes, 1),
            "actor/pg_clipfrac": self.clipped / tokens,
            "actor/ppo_kl": self.kl / tokens,
            "actor/grad_norm": float(np.mean(self.norms)) if self.norms else 0.0,
            "actor/updates": len(self.norms),
            "tokens/computed": self.computed,
        }


def optimize(
    state: TrainerState, prepared: Prepared, settings: TrainerSettings, pack_tokens: int, progress: Progress
) -> dict[str, float]:
    """Changes `state`. A mini-batch whose every advantage is 0 makes no update."""
    tally = Tally()
    state.policy.check = progress.check
    passes = 0
    for epoch in range(settings.ppo_epochs):
        for members in mini_batches(prepared, settings, epoch):
            passes += 1
            samples = [prepared.samples[i] for i in members]
            weight = np.zeros(len(prepared.samples))
            weight[members] = token_weights(samples, settings.loss_agg_mode, settings.loss_scale_factor)
            chains = [prepared.chains[i] for i in members if prepared.advantages[i] != 0]
            if not chains:
                continue
            gradient = state.policy.start_gradient()
            packs = list(make_packs(chains, pack_tokens))
            for number, pack in enumerate(packs):
                progress.show("train", epoch=epoch, pack=number + 1, packs=len(packs), tokens=tally.computed)
                with progress.timed("forward_backward"):
                    _backward(state.policy, pack, prepared.advantages, weight, settings, tally)
            progress.show("optimizer", epoch=epoch)
            with progress.timed("optimizer"):
                tally.norms.append(state.optimizer.step(gradient, settings.optim))
                state.policy.refresh()
    return tally.metrics(passes)


def _backward(
    policy: Policy, pack: Pack, advantages: np.ndarray, weight: np.ndarray, settings: TrainerSettings, tally: Tally
) -> None:
    """Adds the gradient of this pack's share of the loss to the policy's gradient."""
    advantage = torch.from_numpy(advantages[pack.samples]).float().to(policy.device)
    token_weight = torch.from_numpy(weight[pack.samples]).float().to(policy.device)
    old = torch.from_numpy(pack.old_logprobs).to(policy.device)

    def d_logprob(tokens: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
        loss = clipped_loss(logprobs, old[tokens], advantage[tokens], settings.clip_ratio_low, settings.clip_ratio_high)
        tally.loss += float((loss.loss * token_weight[tokens]).sum())
        tally.clipped += float(loss.clipped.sum())
        tally.kl += float((old[tokens] - logprobs).sum())
        return loss.d_logprob * token_weight[tokens]

    hidden = policy.hidden(pack)
    hidden_gradient = backward_through_head(hidden.detach(), policy.head, pack, d_logprob, policy.head_gradient())
    hidden.backward(hidden_gradient)
    tally.tokens += len(pack.targets)
    tally.computed += len(pack.token_ids)
