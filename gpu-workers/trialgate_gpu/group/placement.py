"""Chooses how a model is held: whole in one process, or divided over the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..lora import Lora
from ..optimizer import FlatAdamW
from ..policy import Policy, in_float32_instead, layers_of
from .fit import require_room
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

    @property
    def is_sharded(self) -> bool:
        return self.world.size > 1 or self.offload

    @property
    def pass_dtype(self) -> torch.dtype:
        """The dtype in which training passes compute. Sharded weights are gathered in `dtype`."""
        in_float32 = not self.is_sharded and in_float32_instead(self.device, self.dtype)
        return torch.float32 if in_float32 else self.dtype

    def policy(self, folder: Path, lora: Lora | None = None) -> Policy:
        """Loads the model of `folder` and adds the adapter. Raises `DoesNotFit` when the memory is too small for it."""
        require_room(folder, self.device, self.world, self.dtype, offload=self.offload, lora=lora)
        if self.is_sharded:
            policy: Policy = ShardedPolicy(folder, self.device, self.world, self.dtype, offload=self.offload, lora=lora)
        else:
            policy = Policy(folder, self.device, self.dtype, lora)
        if self.recompute:
            recompute_layers(policy.model)
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
