"""Compares the trainer's gradient of a small model with that of PyTorch's autograd through transformers' own logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from .group.sharded_policy import ShardedPolicy
from .group.world import World
from .pack import make_packs
from .policy import Policy
from .prefix import Prefixes
from .self_check import BRANCH, PREFIX, chains_of, sequences_of

# Not 1, so that a head's cap is on the right side of it.
TEMPERATURE = 0.8
# Untrained tokens of each sequence, and the size of a pack: branches in one pack, and a prefix of several packs.
CASES = ((0, 1 << 30), (PREFIX, BRANCH))


def _cases(policy: Policy) -> Iterator[tuple[list[np.ndarray], int, int]]:
    """Yields sequences, each with a trained token, the untrained tokens before those, and the size of a pack."""
    for untrained, max_tokens in CASES:
        yield [ids for ids in sequences_of(policy) if len(ids) > untrained + 1], untrained, max_tokens


def gradient_deviation(policy: Policy) -> float:
    """Returns the norm of the difference, relative to the gradient's norm. Weights and passes must be in float32.

    The trainer's gradient is that of packs with common prefixes. The other is computed a sequence at a time, without
    the trainer's attention and head. It is the larger one of `CASES`.
    """
    deviations = []
    for sequences, untrained, max_tokens in _cases(policy):
        found = _of_trainer(policy, sequences, untrained, max_tokens).clone()
        expected = _of_autograd(policy, sequences, untrained)
        deviations.append(float((found - expected).norm() / expected.norm()))
    return float(np.max(deviations))


def _slopes(targets: torch.Tensor) -> torch.Tensor:
    """Returns derivatives of a loss by the log-probabilities, with both signs."""
    return torch.sin(targets.float() + 1.0)


def sharded_deviation(policy: Policy, folder: Path) -> float:
    """Returns the same for the gradient of the model in `folder` as ranks divide it (FSDP2), from that of `policy`.

    It is divided over one rank, which is this process; its group of processes must be there.
    """
    sharded = ShardedPolicy(folder, policy.device, World(), torch.float32)
    deviations = []
    for sequences, untrained, max_tokens in _cases(policy):
        expected = policy._views(_of_trainer(policy, sequences, untrained, max_tokens))
        sharded.start_gradient()
        _passes(sharded, sequences, untrained, max_tokens)
        found = sharded.gradients()
        squares = sum(float((found[name] - each).square().sum()) for name, each in expected.items())
        deviations.append((squares / sum(float(each.square().sum()) for each in expected.values())) ** 0.5)
    return float(np.max(deviations))


def _of_trainer(policy: Policy, sequences: list[np.ndarray], untrained: int, max_tokens: int) -> torch.Tensor:
    gradient = policy.start_gradient()
    _passes(policy, sequences, untrained, max_tokens)
    return gradient


def _passes(policy: Policy, sequences: list[np.ndarray], untrained: int, max_tokens: int) -> None:
    prefixes = Prefixes()
    for pack in make_packs(chains_of(sequences, untrained, TEMPERATURE), max_tokens):
        targets = torch.from_numpy(pack.targets).to(policy.device)
        policy.backward(pack, prefixes, lambda tokens, _, of=targets: _slopes(of[tokens]), by_sequence=False)
        if prefixes.states is not None:
            prefixes.states.collect()
    prefixes.end()


def _of_autograd(policy: Policy, sequences: list[np.ndarray], untrained: int) -> torch.Tensor:
    gradient = policy.start_gradient()
    with policy.eager():
        for ids in sequences:
            tokens = torch.from_numpy(ids).to(policy.device)
            logprobs = (policy.logits(tokens)[:-1] / TEMPERATURE).log_softmax(-1)
            chosen = logprobs.gather(1, tokens[1:, None])[untrained:, 0]
            (chosen * _slopes(tokens[untrained + 1 :])).sum().backward()
    return gradient
