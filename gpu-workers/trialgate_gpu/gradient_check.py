"""Compares the trainer's gradient of a small model with that of PyTorch's autograd through transformers' own logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from .group.sharded_policy import ShardedPolicy
from .group.world import World
from .pack import make_packs
from .policy import Policy
from .prefix import Prefixes
from .self_check import BRANCH, chains_of, sequences_of

# Not 1, so that a head's cap is on the right side of it.
TEMPERATURE = 0.8


def gradient_deviation(policy: Policy) -> float:
    """Returns the norm of the difference, relative to the gradient's norm. Weights and passes must be in float32.

    The trainer's gradient is that of packs with common prefixes. The other is computed a sequence at a time, without
    the trainer's attention and head.
    """
    sequences = sequences_of(policy)
    found = _of_trainer(policy, sequences).clone()
    expected = _of_autograd(policy, sequences)
    return float((found - expected).norm() / expected.norm())


def _slopes(targets: torch.Tensor) -> torch.Tensor:
    """Returns derivatives of a loss by the log-probabilities, with both signs."""
    return torch.sin(targets.float() + 1.0)


def sharded_deviation(policy: Policy, folder: Path) -> float:
    """Returns the same for the gradient of the model in `folder` as ranks divide it (FSDP2), from that of `policy`.

    It is divided over one rank, which is this process; its group of processes must be there.
    """
    sequences = sequences_of(policy)
    expected = policy._views(_of_trainer(policy, sequences))
    sharded = ShardedPolicy(folder, policy.device, World(), torch.float32)
    sharded.start_gradient()
    _passes(sharded, sequences)
    found = sharded.gradients()
    squares = sum(float((found[name] - each).square().sum()) for name, each in expected.items())
    return (squares / sum(float(each.square().sum()) for each in expected.values())) ** 0.5


def _of_trainer(policy: Policy, sequences: list[np.ndarray]) -> torch.Tensor:
    gradient = policy.start_gradient()
    _passes(policy, sequences)
    return gradient


def _passes(policy: Policy, sequences: list[np.ndarray]) -> None:
    prefixes = Prefixes()
    for pack in make_packs(chains_of(sequences, 0, TEMPERATURE), BRANCH * 3):
        targets = torch.from_numpy(pack.targets).to(policy.device)
        policy.backward(pack, prefixes, lambda tokens, _, of=targets: _slopes(of[tokens]), by_sequence=False)
        if prefixes.states is not None:
            prefixes.states.collect()
    prefixes.end()


def _of_autograd(policy: Policy, sequences: list[np.ndarray]) -> torch.Tensor:
    gradient = policy.start_gradient()
    with policy.eager():
        for ids in sequences:
            tokens = torch.from_numpy(ids).to(policy.device)
            logprobs = (policy.logits(tokens)[:-1] / TEMPERATURE).log_softmax(-1)
            chosen = logprobs.gather(1, tokens[1:, None])[:, 0]
            (chosen * _slopes(tokens[1:])).sum().backward()
    return gradient
