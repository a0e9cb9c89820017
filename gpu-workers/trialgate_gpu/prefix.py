"""Computes a prompt that many packs share once, and its gradient once.

The keys and values of its tokens are kept for each layer. A pack's tokens attend to them as constants. The gradients
that the packs' backward passes leave on them are added up, and one backward pass through the prompt's own graph ends
the family. This is exact, because a token acts on later ones only through its keys and values. Memory holds the
activations of the prompt and of one pack.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

KeysValues = tuple[torch.Tensor, torch.Tensor]


class PrefixStates:
    """The keys and values of a prefix, [1, kv heads, prefix, dim] each, by attention layer."""

    def __init__(self) -> None:
        self._made: dict[nn.Module, KeysValues] = {}
        self._leaves: dict[nn.Module, KeysValues] = {}
        self._sums: dict[nn.Module, KeysValues] = {}

    def keep(self, layer: nn.Module, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keeps a layer's keys and values. The attention of the prefix's own pass calls this."""
        self._made[layer] = (key, value)
        self._leaves[layer] = tuple(each.detach().requires_grad_(each.requires_grad) for each in (key, value))

    def of(self, layer: nn.Module) -> KeysValues:
        return self._leaves[layer]

    def collect(self) -> None:
        """Adds the gradients that one pack's backward pass left to the sums, in float32."""
        for layer, leaves in self._leaves.items():
            if layer not in self._sums:
                self._sums[layer] = tuple(torch.zeros_like(leaf, dtype=torch.float32) for leaf in leaves)
            for leaf, total in zip(leaves, self._sums[layer], strict=True):
                if leaf.grad is not None:
                    total.add_(leaf.grad)
                    leaf.grad = None

    def backward(self) -> None:
        made = [each for pair in self._made.values() for each in pair]
        sums = [total for layer in self._made for total in self._sums[layer]]
        torch.autograd.backward(made, [total.to(each.dtype) for each, total in zip(made, sums, strict=True)])


class Prefixes:
    """Holds the prefix of the current pack. It is computed when a pack's prefix differs from the one before."""

    def __init__(self) -> None:
        self._tokens: np.ndarray | None = None
        self.states: PrefixStates | None = None
        self.computed = 0

    def is_new(self, tokens: np.ndarray | None) -> bool:
        return tokens is not self._tokens

    def begin(self, tokens: np.ndarray | None, states: PrefixStates | None) -> None:
        self._tokens, self.states = tokens, states
        self.computed += 0 if tokens is None else len(tokens)

    def end(self) -> None:
        """Releases a prefix. If its packs had backward passes, they continue through the prefix."""
        if self.states is not None and torch.is_grad_enabled():
            self.states.backward()
        self._tokens = self.states = None
