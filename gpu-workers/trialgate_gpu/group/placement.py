"""Chooses how a model is held: whole in one process, or divided over the ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ..lora import Lora
from ..multimodal import read_text_model
from ..optimizer import FlatAdamW
from ..policy import Policy, layers_of
from .fit import LEAST_TOKENS, Ranks, main_memory_room, require_room, total_main_memory, without_memory
from .sharded_adamw import ShardedAdamW
from .sharded_policy import ShardedPolicy
from .world import World

Optimizer = FlatAdamW | ShardedAdamW


@dataclass(frozen=True)
class Placement:
    """`offload` keeps weights and moments in main memory; `recompute` keeps no activations within a layer.

    FSDP2 does the offloading, of a single rank too: each layer's weights are on the device only while it runs.
    """

    device: torch.device
    world: World
    dtype: torch.dtype = torch.bfloat16
    offload: bool = False
    recompute: bool = False
    pack_tokens: int = 0
    # The model of each policy `without_memory`.
    _shapes: WeakKeyDictionary[Policy, PreTrainedModel] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    @property
    def is_sharded(self) -> bool:
        return self.world.size > 1 or self.offload

    @property
    def pass_dtype(self) -> torch.dtype:
        return self.ranks(self.pack_tokens).pass_dtype

    def ranks(self, tokens: int, *, is_sequence: bool = False) -> Ranks:
        on_host = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return Ranks(
            self.device,
            self.world.size,
            on_host,
            self.dtype,
            tokens,
            offload=self.offload,
            recompute=self.recompute,
            is_sequence=is_sequence,
        )

    def require_sequence(self, policy: Policy, tokens: int) -> None:
        """Raises `DoesNotFit` when a sequence, which is never split, is longer than a pack and needs too much memory.

        What the loaded model occupies is part of the sum, so the memory is that of the whole machine.
        """
        if tokens > self.pack_tokens:
            ranks = self.ranks(tokens, is_sequence=True)
            require_room(self._shapes[policy], ranks, self.world, total_main_memory())

    def policy(self, folder: Path, lora: Lora | None = None) -> Policy:
        """Loads the model of `folder` and adds the adapter. Raises `DoesNotFit` when the memory is too small for it."""
        shapes = without_memory(read_text_model(folder).config, lora)
        require_room(shapes, self.ranks(min(LEAST_TOKENS, self.pack_tokens)), self.world, main_memory_room())
        if self.is_sharded:
            policy: Policy = ShardedPolicy(folder, self.device, self.world, self.dtype, offload=self.offload, lora=lora)
        else:
            policy = Policy(folder, self.device, self.dtype, lora)
        if self.recompute:
            recompute_layers(policy.model)
        self._shapes[policy] = shapes
        return policy

    def optimizer(self, policy: Policy) -> Optimizer:
        if isinstance(policy, ShardedPolicy):
            return ShardedAdamW(policy, self.world)
        return FlatAdamW(policy.master, policy.decayed())


def recompute_layers(model: nn.Module) -> None:
    """Makes each layer compute its activations again in the backward pass.

    transformers does so only in training mode.
    """
    for layer in layers_of(model):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
