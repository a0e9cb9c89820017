"""Computes a prompt that many packs share once, and its gradient once.

The keys and values of its tokens are kept for each layer. A pack's tokens attend to them as constants. The gradients
that the packs' backward passes leave on them are added up, and one backward pass through the prompt's own graph ends
the family. This is exact, because a token acts on later ones only through its keys and values. Of a layer that keeps a
state it is kept in the same way, as it is at the prompt's end. Memory holds the activations of the prompt and of one
pack.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

States = tuple[torch.Tensor, ...]


class PrefixStates:
    """The keys and values of a prefix, [1, kv heads, prefix, dim] each, or its state at its end, by layer."""

    def __init__(self) -> None:
        self._made: dict[nn.Module, States] = {}
        self._leaves: dict[nn.Module, States] = {}
        self._sums: dict[nn.Module, States] = {}
        # The last hidden states of the prefix's own pass. No token uses them, but the backward pass of a sharded model
        # begins at a module's output: there it gathers the module's weights.
        self.output: torch.Tensor | None = None

    def keep(self, layer: nn.Module, *states: torch.Tensor) -> None:
        """Keeps a layer's keys and values, or its state. The layers of the prefix's own pass call this.

        A layer that is computed again in the backward pass calls it again, which changes nothing.
        """
        if layer in self._made:
            return
        self._made[layer] = states
        self._leaves[layer] = tuple(each.detach().requires_grad_(each.requires_grad) for each in states)

    def of(self, layer: nn.Module) -> States:
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
        pairs = [each for layer, sums in self._sums.items() for each in zip(self._made[layer], sums, strict=True)]
        # With LoRA the keys and values before the first adapter depend on nothing that is trained.
        trained = [(made, total.to(made.dtype)) for made, total in pairs if made.requires_grad]
        if self.output is not None:
            trained.append((self.output, torch.zeros_like(self.output)))
        if trained:
            torch.autograd.backward(*zip(*trained, strict=True))


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
