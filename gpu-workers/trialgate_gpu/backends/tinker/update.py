"""Trains a model on a server by this package's own objectives.

For each update the server gives the log-probabilities, the objective gives their slopes, and a weighted sum of
log-probabilities, whose gradient is the loss's, goes back. So every objective works on every server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ...errors import GpuWorkerError, NotFiniteError
from ...objectives.objective import Tokens
from ...optimize import Tally, measure_gap, mini_batches
from ...pack import Chain
from ...prepare import PreparedBatch
from ...proximal import Proximal
from ...settings import TrainerSettings
from ...slopes import slopes_of
from ...token_shares import token_shares
from .messages import Datum
from .model import RemoteModel
from .traits import Traits


class UnclippedError(Exception):
    """Raised when the server made update `number` with a gradient of this norm, which it should have clipped."""

    def __init__(self, number: int, norm: float) -> None:
        super().__init__(f"the gradient of update {number} has norm {norm:g}")
        self.number, self.norm = number, norm


def datum_of(chain: Chain) -> Datum:
    targets = np.append(chain.inputs[1:], chain.targets[-1]).astype(np.int64)
    return Datum(chain.inputs, {"target_tokens": targets, "weights": np.ones(len(targets), np.float32)})


def require_servable(chains: Sequence[Chain]) -> None:
    """Raises `BadBatch` for samples with a temperature or a mask, for which a server gives no log-probabilities."""
    if any(c.temperature != 1.0 for c in chains):
        what = f"the batch has samples of temperature {next(c.temperature for c in chains if c.temperature != 1.0):g}"
    elif any(c.sampling_mask is not None for c in chains):
        what = "the batch has samples with sampling masks (`top_p`, `top_k`, `min_p` or a grammar)"
    else:
        return
    how = "set `sampling.temperature: 1` and leave the others out, or train without `trainer_server`"
    raise GpuWorkerError("BadBatch", f"{what}, and a trainer server computes neither: {how}")


def train(
    model: RemoteModel,
    traits: Traits,
    prepared: PreparedBatch,
    settings: TrainerSettings,
    seed: int,
    scales: dict[int, float],
) -> dict[str, float]:
    """Makes the step's updates and returns its metrics. `scales` multiplies the gradients of single updates.

    Raises `NotFiniteError`, or `UnclippedError`; the model must then be discarded.
    """
    tally = Tally()
    learned = {c.sample: c for c in prepared.learned}
    passes = [
        indices
        for epoch in range(settings.ppo_epochs)
        for indices in mini_batches(prepared, settings, [settings.seed, seed, epoch])
    ]
    proximal = Proximal()
    first = next(set(indices.tolist()) for indices in passes if any(i in learned for i in indices))
    later = [c for c in learned.values() if c.sample not in first]
    if later:
        for chain, logprobs in zip(later, _logprobs(model, later, "proximal", tally), strict=True):
            proximal.keep_sample(chain.sample, logprobs[chain.predictors])
    for indices in passes:
        shares = np.zeros(len(prepared.samples))
        samples = [prepared.samples[i] for i in indices]
        shares[indices] = token_shares(samples, settings.loss_agg_mode, settings.loss_scale_factor)
        chains = [learned[i] for i in indices if i in learned]
        if not chains:
            continue
        number = len(tally.norms)
        current = _logprobs(model, chains, "forward", tally)
        if number == 0:
            for chain, logprobs in zip(chains, current, strict=True):
                proximal.keep_sample(chain.sample, logprobs[chain.predictors])
        slopes = _slopes(chains, current, proximal, shares, settings, tally, scales.get(number, 1.0))
        data = traits.with_slopes([datum_of(c) for c in chains], current, slopes)
        with model.progress.timed("forward_backward"):
            model.add_gradient(data, traits.loss, "forward_backward")
        tally.computed += sum(len(c.inputs) for c in chains)
        _update(model, traits, settings, tally, number in scales)
    metrics = tally.metrics(len(passes)) | measure_gap(list(learned.values()), proximal, settings)
    # A server gives no entropies.
    del metrics["actor/entropy"]
    return metrics


def _logprobs(model: RemoteModel, chains: list[Chain], phase: str, tally: Tally) -> list[np.ndarray]:
    with model.progress.timed("forward"):
        found = model.logprobs([datum_of(c) for c in chains], phase)
    tally.computed += sum(len(c.inputs) for c in chains)
    return found


def _slopes(
    chains: list[Chain],
    current: list[np.ndarray],
    proximal: Proximal,
    shares: np.ndarray,
    settings: TrainerSettings,
    tally: Tally,
    scale: float,
) -> list[np.ndarray]:
    """Returns the slope of each token of each chain, 0 where the token is not trained."""
    counts = torch.tensor([len(c.targets) for c in chains])
    logprobs = torch.from_numpy(np.concatenate([p[c.predictors] for p, c in zip(current, chains, strict=True)]))
    if not torch.isfinite(logprobs).all():
        raise NotFiniteError("a log-probability of the trainer server is not finite")
    tokens = Tokens(
        torch.from_numpy(np.concatenate([c.advantages for c in chains])).float(),
        proximal.of_samples([c.sample for c in chains]),
        torch.repeat_interleave(torch.arange(len(chains)), counts),
    )
    share = torch.repeat_interleave(torch.from_numpy(shares[[c.sample for c in chains]]).float(), counts)
    rollout = torch.from_numpy(np.concatenate([c.rollout_logprobs for c in chains]))
    found = slopes_of(logprobs, tokens, share, rollout, settings)
    tally.add_slopes(found)
    tally.tokens += len(logprobs)
    if not math.isfinite(tally.loss):
        raise NotFiniteError(f"the loss is {tally.loss}")
    made = []
    for chain, of_chain in zip(chains, torch.split(found.slope * scale, counts.tolist()), strict=True):
        slope = np.zeros(len(chain.inputs), np.float32)
        slope[chain.predictors] = of_chain.numpy()
        made.append(slope)
    return made


def _update(model: RemoteModel, traits: Traits, settings: TrainerSettings, tally: Tally, is_scaled: bool) -> None:
    model.progress.show("optimizer", update=len(tally.norms) + 1)
    with model.progress.timed("optimizer"):
        measured = model.update(settings.optim)
    norm = next((float(value) for name, value in measured.items() if name.endswith("grad_norm")), None)
    if norm is not None and not math.isfinite(norm):
        raise NotFiniteError(f"the norm of the gradient is {norm}")
    if not traits.clips:
        if norm is None:
            what = "the trainer server neither clips gradients (`optim.clip_grad`) nor says their norm"
            raise GpuWorkerError("BadSettings", f"{what}: use a server that does one of them")
        if norm > settings.optim.clip_grad and not is_scaled:
            raise UnclippedError(len(tally.norms), norm)
    tally.norms.append(math.nan if norm is None else norm)
