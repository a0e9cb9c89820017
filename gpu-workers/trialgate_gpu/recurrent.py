"""Computes layers that keep a state (short convolutions, gated delta nets, Mamba-2) over a token trie.

The layer is transformers' own: it takes its state from a cache and leaves the new one there. Here each piece of the
trie (`pieces.py`) is a call with a cache of its own, which begins with the state at the end of the piece before it and
overwrites nothing. So a shared prefix is computed once, and its gradient too: those of all branches flow back into its
state. The state of a prefix that several packs share is kept as the keys and values of attention are (`prefix.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.functional import pad

from .attention import Plan
from .pieces import PREFIX
from .prefix import States

# What transformers' layers call their cache.
CACHES = ("cache_params", "past_key_values")
# The layers that tests and the table of models (docs/models.md) have shown to begin with a state as they should. Others
# look the same and do not: the scan of Mamba-1 (Zamba) begins with none.
PROVEN = {
    *("Lfm2ShortConv", "Lfm2MoeShortConv"),
    *("Qwen3NextGatedDeltaNet", "Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet", "OlmoHybridGatedDeltaNet"),
    "KimiLinearDeltaAttention",
    *("Mamba2Mixer", "BambaMixer", "GraniteMoeHybridMambaLayer", "FalconH1Mixer", "NemotronHMamba2Mixer"),
}


class Carried:
    """The state of one layer, with the methods of transformers' `Cache` that such a layer calls.

    `states` has the last inputs of its convolution, [pieces, channels, kernel - 1], and if it has one its recurrent
    state, [pieces, ...].
    """

    # Otherwise the layer takes its inputs for a convolution from kernels that overwrite the state.
    record_past = True

    def __init__(self, layer: int, kernel: int, before: States | None) -> None:
        self.layers = {layer: self}
        self.states: States = before or ()
        self._before, self._kernel = before, kernel

    @property
    def conv_states(self) -> Mapping[int, torch.Tensor]:
        return dict(enumerate(self.states[:1]))

    @property
    def recurrent_states(self) -> Mapping[int, torch.Tensor]:
        return dict(enumerate(self.states[1:]))

    def has_previous_state(self, *_: Any, **__: Any) -> bool:
        return self._before is not None

    def update_conv_state(self, new: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Takes [pieces, channels, tokens]; returns them behind those that the kernel still reaches."""
        if self._before is not None:
            new = torch.cat([self._before[0], new], dim=-1)
        reach = self._kernel - 1
        # Before a sequence there is nothing: the convolution has zeros there.
        kept = pad(new, (max(0, reach - new.shape[-1]), 0))
        self.states = (kept[..., kept.shape[-1] - reach :], *self.states[1:])
        return new

    def update_recurrent_state(self, new: torch.Tensor, *_: Any, **__: Any) -> None:
        self.states = (*self.states[:1], new)


class Recurrent:
    """Stands in for the `forward` of a layer that keeps a state. Without a plan it is that `forward`."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer, self.forward = layer, layer.forward
        self.cache = _cache_of(layer)
        self.plan: Plan | None = None

    def __call__(self, hidden_states: torch.Tensor, **given: Any) -> torch.Tensor:
        """Takes and returns [1, nodes, width]."""
        plan = self.plan
        if plan is None:
            return self.forward(hidden_states, **given)
        plan.check()
        given.pop("trie_plan", None)
        prefix = None if plan.prefix is None or plan.is_prefix else plan.prefix.of(self.layer)
        kept: dict[int, States] = {} if prefix is None else {PREFIX: prefix}
        outputs = []
        for number, call in enumerate(plan.pieces.calls):
            carried = None
            if call.before is not None or call.is_kept:
                carried = Carried(self.layer.layer_idx, self.layer.conv_kernel_size, _states(call.before, kept))
            piece = hidden_states[0].index_select(0, call.nodes.flatten()).view(*call.nodes.shape, -1)
            outputs.append(self.forward(piece, **given | {self.cache: carried}).flatten(0, 1))
            if call.is_kept:
                kept[number] = carried.states
        if plan.is_prefix:
            plan.prefix.keep(self.layer, *kept[0])
        return torch.cat(outputs).index_select(0, plan.pieces.order).unsqueeze(0)


def _states(before: tuple[int, ...] | None, kept: dict[int, States]) -> States | None:
    if before is None:
        return None
    return tuple(torch.cat(each) for each in zip(*(kept[number] for number in before), strict=True))


def _cache_of(layer: nn.Module) -> str:
    taken = signature(layer.forward).parameters
    return next(name for name in CACHES if name in taken)


def carries_state(module: nn.Module) -> bool:
    """Returns True for a layer that keeps a state and can begin with one."""
    return type(module).__name__ in PROVEN


def prepare(layers: nn.ModuleList) -> None:
    """Lets those of a model's layers that keep a state follow the plan of each pass."""
    for layer in layers:
        for module in layer.modules():
            if carries_state(module):
                module.forward = Recurrent(module)
                layer.forward = partial(with_plan, layer.forward, module.forward)


class FollowsPlan(Protocol):
    plan: Plan | None


def with_plan(forward: Callable[..., Any], part: FollowsPlan, *args: Any, **given: Any) -> Any:
    """Runs a model's layer, also when it is computed again. Not every one hands the plan on to its parts."""
    part.plan = given.get("trie_plan")
    try:
        return forward(*args, **given)
    finally:
        # It holds the states of a prefix, which are not needed after its packs.
        part.plan = None
