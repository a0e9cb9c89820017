"""Optimizes one step: mini-batches of trials, packs within them, and one AdamW update for each mini-batch."""

from __future__ import annotations

import math
import time
from collections import defaultdict

import numpy as np
import torch

from .checkpoint import TrainerState
from .errors import NotFiniteError
from .group.rounds import passes_of, rounds_of
from .group.world import World
from .objectives import OBJECTIVES
from .objectives.objective import Tokens
from .pack import Chain, Pack
from .performance import ModelFlops
from .policy import Policy
from .prefix import Prefixes
from .prepare import PreparedBatch
from .progress import Progress
from .proximal import Proximal
from .rollout_correction import correction_metrics, needs_sequences
from .settings import TrainerSettings
from .slopes import Slopes, slopes_of
from .token_shares import token_shares


def mini_batches(prepared: PreparedBatch, settings: TrainerSettings, seed: list[int]) -> list[np.ndarray]:
    """Returns the sample indices of each update.

    A mini-batch has whole trials, and those of a group stay together as far as they fit. The order of the groups is
    drawn from `seed`.
    """
    samples_of: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, sample in enumerate(prepared.samples):
        samples_of[sample.group_id][sample.trial_id].append(index)
    groups = list(samples_of.values())
    size = settings.ppo_mini_batch_size
    if size is None or size >= sum(map(len, groups)):
        return [np.arange(len(prepared.samples))]
    order = np.random.default_rng(seed).permutation(len(groups))
    trials = [samples for group in order for samples in groups[group].values()]
    return [np.concatenate(trials[i : i + size]) for i in range(0, len(trials), size)]


class Tally:
    """Sums over the trained tokens of samples with an advantage, which are the ones that are computed."""

    def __init__(self) -> None:
        self.loss = self.clipped = self.kl = self.entropy = self.tokens = 0.0
        self.computed = self.distinct = 0
        self.flops = 0.0
        self.norms: list[float] = []

    def add_slopes(self, found: Slopes) -> None:
        self.loss += found.loss
        self.clipped += found.clipped
        self.kl += found.kl

    def add_up(self, world: World) -> None:
        """Adds the sums of all ranks. `norms` are the same on all."""
        sums = [self.loss, self.clipped, self.kl, self.entropy, self.tokens, self.computed]
        self.loss, self.clipped, self.kl, self.entropy, self.tokens, computed = world.sums(sums)
        self.computed = int(computed)

    def add(self, other: Tally) -> None:
        for name in ("loss", "clipped", "kl", "entropy", "tokens", "computed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def metrics(self, passes: int) -> dict[str, float]:
        tokens = max(self.tokens, 1.0)
        return {
            "actor/pg_loss": self.loss / max(passes, 1),
            "actor/pg_clipfrac": self.clipped / tokens,
            "actor/ppo_kl": self.kl / tokens,
            "actor/entropy": self.entropy / tokens,
            "actor/grad_norm": float(np.mean(self.norms)) if self.norms else 0.0,
            "actor/updates": len(self.norms),
            "tokens/computed": self.computed,
            "tokens/distinct": self.distinct,
        }

    def rates(self, seconds: float, world: World, waited: float) -> dict[str, float]:
        """Returns how fast the ranks together were, and the share of `seconds` that they waited for each other.

        `waited` is this rank's time in exchanges.
        """
        rates = {
            "perf/distinct_tokens_per_second": self.distinct / seconds,
            "perf/trained_tokens_per_second": self.tokens / seconds,
            "perf/model_tflops_per_rank": self.flops / seconds / world.size / 1e12,
        }
        if world.waits_on_host:
            idle = world.gather(waited / seconds)
            rates |= {"perf/idle_share/mean": float(np.mean(idle)), "perf/idle_share/max": max(idle)}
        return rates


def optimize(
    state: TrainerState,
    prepared: PreparedBatch,
    settings: TrainerSettings,
    pack_tokens: int,
    seed: int,
    progress: Progress,
    world: World = World(),  # noqa: B008
) -> dict[str, float]:
    """Trains `state` in place and returns metrics. A mini-batch whose advantages are all 0 makes no update.

    Every rank has the whole batch and computes its own packs. `seed` belongs to this step.
    Raises `NotFiniteError` when a loss, gradient or weight is not finite; the caller must
    then discard `state`.
    """
    tally = Tally()
    begun, waited = time.perf_counter(), world.waiting.seconds
    counted = ModelFlops(state.policy.model)
    state.policy.check = progress.check
    state.policy.routers.reset()
    learned = {c.sample: c for c in prepared.learned}
    if not learned:
        return tally.metrics(0)
    passes = [
        (epoch, indices)
        for epoch in range(settings.ppo_epochs)
        for indices in mini_batches(prepared, settings, [settings.seed, seed, epoch])
    ]
    proximal = Proximal()
    first = next(set(indices) for _, indices in passes if any(i in learned for i in indices))
    later = [c for c in learned.values() if c.sample not in first]
    proximal.measure(state.policy, later, pack_tokens, progress, world)
    for update, (epoch, indices) in enumerate(passes, start=1):
        shares = np.zeros(len(prepared.samples))
        samples = [prepared.samples[i] for i in indices]
        shares[indices] = token_shares(samples, settings.loss_agg_mode, settings.loss_scale_factor)
        chains = [learned[i] for i in indices if i in learned]
        if not chains:
            continue
        gradient = state.policy.start_gradient()
        rounds = rounds_of(chains, pack_tokens, world)
        prefixes = Prefixes()
        part = Tally()
        part.norms = tally.norms
        distinct, flops = counted.of_chains(chains)
        tally.distinct += distinct
        tally.flops += flops
        done, packs = 0, sum(each.slots for each in rounds)
        with progress.timed("forward_backward"):
            for each in rounds:
                for pack in passes_of(each, state.policy, prefixes):
                    done += 1
                    progress.show(
                        "train",
                        epoch=epoch,
                        update=update,
                        updates=len(passes),
                        pack=done,
                        packs=packs,
                        tokens=tally.computed + part.computed,
                    )
                    if pack is None:
                        state.policy.idle(backward=True)
                    else:
                        backward(state.policy, pack, prefixes, shares, proximal, settings, part)
        part.computed += prefixes.computed
        progress.show("reduce", epoch=epoch)
        with progress.timed("reduce"):
            part.add_up(world)
        if not math.isfinite(part.loss):
            raise NotFiniteError(f"the loss is {part.loss}")
        tally.add(part)
        if not tally.norms:
            proximal.exchange(world)
        progress.show("optimizer", epoch=epoch)
        with progress.timed("optimizer"):
            tally.norms.append(state.optimizer.step(gradient, settings.optim))
            state.policy.refresh()
    rates = tally.rates(time.perf_counter() - begun, world, world.waiting.seconds - waited)
    of_routers = state.policy.routers.metrics(world)
    return tally.metrics(len(passes)) | rates | of_routers | measure_gap(list(learned.values()), proximal, settings)


def measure_gap(chains: list[Chain], proximal: Proximal, settings: TrainerSettings) -> dict[str, float]:
    """Measures how far the engine's log-probabilities are from the trainer's, over the trained tokens of `chains`."""
    counts = torch.tensor([len(c.targets) for c in chains])
    sequence = torch.repeat_interleave(torch.arange(len(chains)), counts)
    old_logprobs = proximal.of_samples([c.sample for c in chains])
    rollout_logprobs = torch.from_numpy(np.concatenate([c.rollout_logprobs for c in chains]))
    tokens = Tokens(torch.zeros_like(old_logprobs), old_logprobs, sequence)
    return correction_metrics(tokens, rollout_logprobs, settings) | {"tokens/proximal": proximal.computed}


def backward(
    policy: Policy,
    pack: Pack,
    prefixes: Prefixes,
    shares: np.ndarray,
    proximal: Proximal,
    settings: TrainerSettings,
    tally: Tally,
) -> None:
    """Adds the gradient of this pack's part of the loss to the policy's gradient. `shares` is [samples].

    The first update begins at the starting weights, so its pass also gives `proximal` the values for later updates.
    """
    advantage = torch.from_numpy(pack.advantages).float().to(policy.device)
    share = torch.from_numpy(shares[pack.samples]).float().to(policy.device)
    rollout_logprobs = torch.from_numpy(pack.rollout_logprobs).to(policy.device)
    sequence = torch.from_numpy(np.unique(pack.samples, return_inverse=True)[1]).to(policy.device)
    at_start = not tally.norms
    old_logprobs = torch.empty_like(rollout_logprobs) if at_start else proximal.of(pack).to(policy.device)

    def slopes(index: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
        if at_start:
            old_logprobs[index] = logprobs
        tokens = Tokens(advantage[index], old_logprobs[index], sequence[index])
        found = slopes_of(logprobs, tokens, share[index], rollout_logprobs[index], settings)
        tally.add_slopes(found)
        return found.slope

    by_sequence = OBJECTIVES[settings.objective].by_sequence or needs_sequences(settings)
    entropies = policy.backward(pack, prefixes, slopes, by_sequence=by_sequence)
    if prefixes.states is not None:
        prefixes.states.collect()
    if at_start:
        proximal.keep(pack, old_logprobs)
    tally.entropy += float(entropies.sum())
    tally.tokens += len(pack.targets)
    tally.computed += len(pack.token_ids)
