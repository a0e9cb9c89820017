"""Weights the tokens' losses in a mini-batch's loss: by trial, regardless of how many samples a trial has."""

from __future__ import annotations

from collections import Counter

import numpy as np

from .batch import Sample
from .errors import GpuWorkerError


def token_shares(samples: list[Sample], mode: str, scale: float | None) -> np.ndarray:
    """Returns [samples]: the weight of one trained token of each sample in the loss of the mini-batch `samples`.

    The loss is a plain weighted sum over tokens, so that packs can be summed one by one and samples without an
    advantage left out, while the normalizer is still that of the whole mini-batch. A trial's "sequence" is all that was
    sampled in it: a trial that branched into several samples weighs as much as one that did not. `scale` is Dr. GRPO's
    constant, in tokens a trial.
    """
    tokens_of_trial: Counter[str] = Counter()
    for sample in samples:
        tokens_of_trial[sample.trial_id] += sample.trained_tokens
    trials, total = len(tokens_of_trial), tokens_of_trial.total()
    if mode == "token-mean":
        return np.full(len(samples), 1.0 / total)
    if mode == "seq-mean-token-mean":
        return np.array([1.0 / (trials * tokens_of_trial[s.trial_id]) for s in samples])
    if mode == "seq-mean-token-sum-norm":
        return np.full(len(samples), 1.0 / (trials * (scale or max(tokens_of_trial.values()))))
    raise GpuWorkerError("BadSettings", f"unknown loss_agg_mode {mode!r}")
