"""Holds a policy whose weights are divided over the ranks of a group (PyTorch's FSDP2).

Each rank keeps its part of the float32 master weights. A layer's weights are gathered in the compute dtype while the
layer runs, and its gradient is summed over the ranks in float32. The model, its attention and the pass through the head
are those of `Policy`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion

from ..attention import make_plan, register
from ..head import HeadGradient, Slopes, backward_through_head, token_logprobs
from ..lora import Lora, adapter_tensors, add_adapter, without_adapter
from ..multimodal import read_text_model, set_conversions
from ..pack import Pack, untrained_pack
from ..policy import Policy, layers_of
from ..prefix import Prefixes, PrefixStates
from ..recurrent import prepare
from ..router_replay import Routers
from ..routing import Routing
from ..supported import require_supported
from .weight_source import WeightSource, weight_source
from .world import World


class _Core(nn.Module):
    """The root of the sharded modules: while its forward runs, the embeddings, the last norm and the head are whole."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        found = work()
        # FSDP2 begins the backward pass at its module's output, which must not be a view of another tensor.
        return found.clone() if found._is_view() else found


class ShardedPolicy(Policy):
    """Has the methods of `Policy`. Every rank calls them in the same order, with packs of its own.

    `master` has this rank's part of each weight.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        world: World,
        dtype: torch.dtype = torch.bfloat16,
        *,
        offload: bool = False,
        lora: Lora | None = None,
    ) -> None:
        text = read_text_model(folder)
        config, self.whole, self.place = text.config, text.whole, text.place
        require_supported(self.whole or config, folder)
        self.device, self.world, self.dtype, self.lora = device, world, dtype, lora
        self.check: Callable[[], None] = lambda: None
        self.head_dtype = "model"
        source = world.together(lambda: weight_source(folder, text, lora) if world.rank == 0 else None)
        with torch.device("meta"):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=register())
        self.model.eval()
        if text.key_mapping:
            set_conversions(self.model, folder, text.key_mapping)
        if lora is not None:
            add_adapter(self.model, lora)
            for each in self.model.parameters():
                each.data = each.data if each.requires_grad else each.data.to(dtype)
        prepare(layers_of(self.model))
        self.routers = Routers(layers_of(self.model))
        named = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        self.names, self.shapes = list(named), {name: parameter.shape for name, parameter in named.items()}
        name_of = {id(parameter): name for name, parameter in named.items()}
        head = self.model.get_output_embeddings()
        self.head_names = [name_of[id(each)] for each in (head.weight, head.bias) if id(each) in name_of]
        self.mesh = init_device_mesh(device.type, (world.size,))
        self.core = _Core(self.model)
        self._shard(offload)
        self._fill(source, torch.device("cpu") if offload else device)
        self.parameters = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        self.master = {name: each.to_local().detach() for name, each in self.parameters.items()}
        self._head_sums: list[torch.Tensor] = []

    def _shard(self, offload: bool) -> None:
        precision = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        # Pinned memory makes copies to a GPU fast; without a GPU there is none.
        offloaded = CPUOffloadPolicy(pin_memory=self.device.type == "cuda") if offload else OffloadPolicy()
        for module in [*layers_of(self.model), self.core]:
            fully_shard(
                module, mesh=self.mesh, mp_policy=precision, offload_policy=offloaded, reshard_after_forward=True
            )
            # Losses are sums over tokens with a global normalizer, so gradients are added up, not averaged.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            self.world.waiting.watch(module)

    @torch.no_grad()
    def _fill(self, source: WeightSource | None, device: torch.device) -> None:
        """Gives every rank its part of the weights that rank 0 has read, and all buffers."""
        self.core.to_empty(device=device)
        # Sent as they are stored, weights in bfloat16 take half as much as those that are kept.
        dtypes = self.world.of_first({} if source is None else source.dtypes)
        for name, parameter in self.model.named_parameters():
            if source is None:
                full = torch.empty(parameter.shape, dtype=dtypes[name], device=self.device)
            else:
                full = source.weight(name).to(self.device)
            part = distribute_tensor(full, self.mesh, parameter.placements)
            parameter.to_local().copy_(part.to_local())
            del full, part
        buffers = self.world.of_first({} if source is None else {n: each.cpu() for n, each in source.buffers.items()})
        for name, buffer in buffers.items():
            owner, _, attribute = name.rpartition(".")
            self.model.get_submodule(owner)._buffers[attribute] = buffer.to(self.device)
        # FSDP2 would do so in the first pass, and set the dtype in which weights are gathered back to that of training.
        self.core._get_fsdp_state()._lazy_init()

    @property
    def _fsdp_parameters(self) -> Iterator[Any]:
        for module in self.core.modules():
            if isinstance(module, FSDPModule) and (group := module._get_fsdp_state()._fsdp_param_group):
                yield from group.fsdp_params

    @contextmanager
    def in_float32(self, *, rounded: bool = False) -> Iterator[None]:
        kept = {name: part.clone() for name, part in self.master.items()} if rounded else {}
        for name in kept:
            self.master[name].copy_(self.master[name].to(self.dtype))
        self._gather_as(torch.float32)
        try:
            yield
        finally:
            self._gather_as(self.dtype)
            for name, part in kept.items():
                self.master[name].copy_(part)

    def _gather_as(self, dtype: torch.dtype) -> None:
        """Sets the dtype in which weights are gathered. FSDP2 has no public way to change it."""
        for each in self._fsdp_parameters:
            each.param_dtype = None if dtype == each.sharded_param.dtype else dtype
            each.all_gather_outputs = []
            if hasattr(each, "_unsharded_param"):
                del each._unsharded_param

    def decayed(self) -> list[torch.Tensor]:
        return [self.master[name] for name, shape in self.shapes.items() if len(shape) > 1]

    def refresh(self) -> None:
        """Does nothing: each gathering rounds the master weights."""

    def start_gradient(self) -> None:
        self.core.zero_grad(set_to_none=True)
        for each in self._head_sums:
            each.zero_()

    def head_gradient(self) -> HeadGradient | None:
        """Returns whole tensors in float32. `gradients` adds them to those of the ranks' parts, once an update."""
        if not self.head_names:
            return None
        if not self._head_sums:
            self._head_sums = [
                torch.zeros(self.shapes[name], dtype=torch.float32, device=self.device) for name in self.head_names
            ]
        return HeadGradient(*self._head_sums)

    def gradients(self) -> dict[str, torch.Tensor]:
        """Returns the gradient of each of this rank's parts, summed over the ranks."""
        found = {}
        for name, parameter in self.parameters.items():
            part = self.master[name]
            found[name] = torch.zeros_like(part) if parameter.grad is None else parameter.grad.to_local()
        for name, total in zip(self.head_names, self.head_gradient() or (), strict=False):
            with self.world.waiting.timed():
                dist.all_reduce(total)
            first = self._first_row(name)
            found[name] += total[first : first + len(found[name])].to(found[name].device)
        return found

    def _first_row(self, name: str) -> int:
        _, offsets = compute_local_shape_and_global_offset(
            self.shapes[name], self.mesh, self.parameters[name].placements
        )
        return offsets[0]

    @torch.no_grad()
    def infer(self, pack: Pack, prefixes: Prefixes | None = None) -> torch.Tensor:
        return self.core(lambda: self.hidden(pack, prefixes))

    @torch.no_grad()
    def logprobs(self, pack: Pack, prefixes: Prefixes | None = None) -> torch.Tensor:
        self._begin(pack, prefixes or (prefixes := Prefixes()))
        return self.core(lambda: token_logprobs(self.hidden(pack, prefixes), self.head, pack))

    def backward(self, pack: Pack, prefixes: Prefixes, slopes: Slopes, *, by_sequence: bool) -> torch.Tensor:
        self._begin(pack, prefixes)
        found: list[torch.Tensor] = []

        def forward() -> torch.Tensor:
            hidden = self.hidden(pack, prefixes)
            found.extend(
                backward_through_head(
                    hidden.detach(), self.head, pack, slopes, self.head_gradient(), by_sequence=by_sequence
                )
            )
            return hidden

        hidden = self.core(forward)
        hidden.backward(found[0])
        return found[1]

    def _begin(self, pack: Pack, prefixes: Prefixes) -> None:
        """Computes the pack's prefix in a pass of its own through the sharded modules."""
        if prefixes.is_new(pack.prefix):
            prefixes.end()
            if pack.prefix is not None:
                prefixes.begin(pack.prefix, self._prefix_states(pack.prefix, pack.prefix_routing))

    def _prefix_states(
        self, tokens: np.ndarray, routing: Routing | None = None, *, is_idle: bool = False
    ) -> PrefixStates:
        states = PrefixStates()
        pack = untrained_pack(tokens, routing)
        plan = make_plan(pack, self.device, lambda: self.check(), states, is_prefix=True)
        plan = replace(plan, is_idle=is_idle)
        output = self.core(lambda: self._forward(pack, plan))
        states.output = output if output.requires_grad else None
        return states

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.core(lambda: super(ShardedPolicy, self).logits(tokens))

    def idle(self, *, backward: bool) -> None:
        """Takes part in another rank's pack without a token of its own: a pass over one token, whose gradient is 0."""
        pack = untrained_pack(np.zeros(1, np.int64))
        plan = replace(make_plan(pack, self.device, lambda: self.check()), is_idle=True)
        hidden = self.core(lambda: self._forward(pack, plan))
        if backward:
            hidden.backward(torch.zeros_like(hidden))

    def idle_prefix(self) -> PrefixStates:
        """Takes part in another rank's prefix. The result's `backward` takes part in that of the prefix."""
        return self._prefix_states(np.zeros(1, np.int64), is_idle=True)

    def adapter(self) -> dict[str, torch.Tensor]:
        return {name: each.detach().to(self.dtype).full_tensor() for name, each in self.parameters.items()}

    def read_adapter(self, file: Path) -> None:
        for name, tensor in adapter_tensors(file, self.parameters, self.name_in_adapter):
            whole, placements = tensor.to(self.device, torch.float32), self.parameters[name].placements
            self.master[name].copy_(distribute_tensor(whole, self.mesh, placements).to_local())

    def model_chunks(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields whole weights in the compute dtype, a layer at a time, named as in the base model's files."""
        chunks: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, tensor in without_adapter(self.model.state_dict()).items():
            layer = re.match(r".*\.layers\.\d+\.", name)
            chunks[layer.group() if layer else ""][name] = tensor
        for chunk in chunks.values():
            whole = {
                name: each.to(self.dtype).full_tensor() if isinstance(each, DTensor) else each
                for name, each in chunk.items()
            }
            yield revert_weight_conversion(self.model, whole)
