"""The optimisation of one step: mini-batches of samples, packs within them, one AdamW update each."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import torch

from .checkpoint import TrainerState
from .errors import NotFiniteError
from .grpo_loss import clipped_loss, token_weights, truncated_weight
from .head import backward_through_head
from .pack import Pack, make_packs
from .policy import Policy
from .prepare import Prepared
from .progress import Progress
from .proximal import Proximal
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
    """Changes `state`. A mini-batch whose every advantage is 0 makes no update.

    Raises `NotFiniteError` when a loss, gradient or weight is not finite; `state` is then of no more use.
    """
    tally = Tally()
    state.policy.check = progress.check
    learned = {c.sample: c for c in prepared.learned}
    passes = [(e, members) for e in range(settings.ppo_epochs) for members in mini_batches(prepared, settings, e)]
    proximal = None
    if prepared.staleness[list(learned)].any():
        proximal = Proximal()
        first = next(set(members) for _, members in passes if any(i in learned for i in members))
        later = [c for c in learned.values() if c.sample not in first]
        proximal.measure(state.policy, later, pack_tokens, progress)
    for epoch, members in passes:
        samples = [prepared.samples[i] for i in members]
        weight = np.zeros(len(prepared.samples))
        weight[members] = token_weights(samples, settings.loss_agg_mode, settings.loss_scale_factor)
        chains = [learned[i] for i in members if i in learned]
        if not chains:
            continue
        gradient = state.policy.start_gradient()
        packs = list(make_packs(chains, pack_tokens))
        for number, pack in enumerate(packs):
            progress.show("train", epoch=epoch, pack=number + 1, packs=len(packs), tokens=tally.computed)
            with progress.timed("forward_backward"):
                backward(state.policy, pack, prepared.advantages, weight, proximal, settings, tally)
        progress.show("optimizer", epoch=epoch)
        with progress.timed("optimizer"):
            tally.norms.append(state.optimizer.step(gradient, settings.optim))
            state.policy.refresh()
    corrected = proximal.metrics(list(learned.values()), settings.rollout_is_threshold) if proximal else {}
    return tally.metrics(len(passes)) | corrected


def backward(
    policy: Policy,
    pack: Pack,
    advantages: np.ndarray,
    weight: np.ndarray,
    proximal: Proximal | None,
    settings: TrainerSettings,
    tally: Tally,
) -> None:
    """Adds the gradient of this pack's share of the loss to the policy's gradient.

    Without stale tokens (`proximal` is None) the recorded log-probabilities count as those of the starting weights.
    """
    advantage = torch.from_numpy(advantages[pack.samples]).float().to(policy.device)
    token_weight = torch.from_numpy(weight[pack.samples]).float().to(policy.device)
    recorded = torch.from_numpy(pack.old_logprobs).to(policy.device)
    at_start = proximal is not None and not tally.norms
    if proximal is None:
        old = recorded
    elif at_start:
        old = torch.empty_like(recorded)
    else:
        old = proximal.of(pack).to(policy.device)

    def d_logprob(tokens: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
        if at_start:
            old[tokens] = logprobs
        loss = clipped_loss(logprobs, old[tokens], advantage[tokens], settings.clip_ratio_low, settings.clip_ratio_high)
        share = token_weight[tokens] * truncated_weight(old[tokens], recorded[tokens], settings.rollout_is_threshold)
        tally.loss += float((loss.loss * share).sum())
        tally.clipped += float(loss.clipped.sum())
        tally.kl += float((old[tokens] - logprobs).sum())
        return loss.d_logprob * share

    hidden = policy.hidden(pack)
    hidden_gradient = backward_through_head(hidden.detach(), policy.head, pack, d_logprob, policy.head_gradient())
    if not math.isfinite(tally.loss):
        raise NotFiniteError(f"the loss is {tally.loss}")
    hidden.backward(hidden_gradient)
    if at_start:
        proximal.keep(pack, old)
    tally.tokens += len(pack.targets)
    tally.computed += len(pack.token_ids)
