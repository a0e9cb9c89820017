"""Holds the model as the trainer uses it: bfloat16 compute weights, flat float32 master weights and gradients.

With LoRA these are the adapter's alone; the base model's weights are frozen, in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from .attention import Plan, make_plan, register
from .device import computes_in_bfloat16, is_out_of_memory
from .head import Head, HeadGradient, Slopes, backward_through_head, token_logprobs
from .logit_shape import LogitShape
from .lora import Lora, adapter_tensors, add_adapter, peft_name, without_adapter
from .multimodal import Places, TextModel, around, cannot_be_loaded, read_text_model
from .pack import Pack, untrained_pack
from .prefix import Prefixes, PrefixStates
from .recurrent import prepare
from .router_replay import Routers
from .routing import Routing
from .supported import require_supported


@contextmanager
def _frozen_in_float32(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    kept = [(parameter, parameter.data) for parameter in parameters if not parameter.requires_grad]
    for parameter, data in kept:
        parameter.data = data.float()
    try:
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


@contextmanager
def _in_float32_while_it_runs(layer: nn.Module) -> Iterator[None]:
    running = ExitStack()

    def begin(*_: Any) -> None:
        running.enter_context(_frozen_in_float32(layer.parameters()))

    def end(*_: Any) -> None:
        running.close()

    hooks = [layer.register_forward_pre_hook(begin), layer.register_forward_hook(end)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        running.close()


class Policy:
    """Master weights, in the order of `names`, are views of one flat tensor: one optimizer call, one contiguous file.

    Only parameters are rounded to the compute dtype. Buffers keep the dtype that transformers gave them: rotary
    frequencies in bfloat16 would rotate far tokens by a wrong angle. `running` has the weights of the passes:
    the compute weights, or their values in float32 (`computes_in_bfloat16`).
    `check` is called many times in each pass and may raise to end it.
    """

    # The configuration of the multimodal model that the policy is the text model of.
    whole: PretrainedConfig | None = None
    # Where that one has the text model.
    place: Places | None = None
    _around: PreTrainedModel | None = None

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
        lora: Lora | None = None,
    ) -> None:
        text = read_text_model(folder)
        require_supported(text.whole or text.config, folder)
        self.device = device
        self.whole, self.place = text.whole, text.place
        # In eval mode there is no dropout, so the log-probabilities are those that an engine computes.
        source = load_model(folder, text).eval()
        self.lora = lora
        if lora is not None:
            add_adapter(source, lora)
        prepare(layers_of(source))
        self.routers = Routers(layers_of(source))
        trained = {name: p for name, p in source.named_parameters() if p.requires_grad}
        self.names = list(trained)
        self.shapes = {name: p.shape for name, p in trained.items()}
        self.master = torch.cat([p.detach().float().reshape(-1) for p in trained.values()]).to(device)
        self.compute = torch.empty(self.master.numel(), dtype=dtype, device=device)
        self.running = self.compute.float() if in_float32_instead(device, dtype) else self.compute
        for parameter in source.parameters():
            rounded = parameter.data.new_empty(0) if parameter.requires_grad else parameter.data.to(dtype)
            parameter.data = rounded.to(self.running.dtype)
        self.model = source.to(device)
        self.gradient: torch.Tensor | None = None
        self.check: Callable[[], None] = lambda: None
        # `model`: logits are computed in the compute weights' dtype; `float32`: see `Head`.
        self.head_dtype = "model"
        self._use(self.running)
        self.refresh()

    def _use(self, flat: torch.Tensor) -> None:
        views = self._views(flat)
        for name, parameter in self._trained():
            parameter.data = views[name]

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if name in self.shapes]

    @contextmanager
    def in_float32(self, *, rounded: bool = False) -> Iterator[None]:
        """Computes in float32 with the master weights, or with the values of the compute weights if `rounded`.

        The frozen weights of a layer are in float32 only while it runs. No gradient can be taken.
        """
        layers = layers_of(self.model)
        in_layers = set(layers.parameters())
        with ExitStack() as stack:
            outside = [parameter for parameter in self.model.parameters() if parameter not in in_layers]
            stack.enter_context(_frozen_in_float32(outside))
            for layer in layers:
                stack.enter_context(_in_float32_while_it_runs(layer))
            self._use(self.compute.float() if rounded else self.master)
            stack.callback(self._use, self.running)
            yield

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        pieces = flat.split([s.numel() for s in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def decayed(self) -> list[torch.Tensor]:
        """Returns the master weights to which weight decay applies: matrices, not norms and biases."""
        return [view for view in self._views(self.master).values() if view.dim() > 1]

    def refresh(self) -> None:
        """Rounds the master weights into the compute weights."""
        self.compute.copy_(self.master)
        if self.running is not self.compute:
            self.running.copy_(self.compute)

    def start_gradient(self) -> torch.Tensor:
        """Returns the flat float32 gradient, zeroed. Every backward pass adds to it."""
        if self.gradient is None:
            self.gradient = torch.zeros_like(self.master)
            views = self._views(self.gradient)
            for name, parameter in self._trained():
                parameter.register_post_accumulate_grad_hook(self._adder(views[name]))
            self._gradient_views = views
        return self.gradient.zero_()

    def _adder(self, total: torch.Tensor) -> Callable[[nn.Parameter], None]:
        def add(parameter: nn.Parameter) -> None:
            self.check()
            total.add_(parameter.grad)
            parameter.grad = None

        return add

    @property
    def head(self) -> Head:
        shape = LogitShape.of(self.model.config.get_text_config())
        return Head(self.model.get_output_embeddings(), shape, in_float32=self.head_dtype == "float32")

    def head_gradient(self) -> HeadGradient | None:
        """Returns the tensors for the head's gradient. When the weights are tied, the embedding's gradient has both.

        Returns None when the head is frozen.
        """
        if not self.head.weight.requires_grad:
            return None
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        bias = self.head.bias
        return HeadGradient(
            self._gradient_views[names[id(self.head.weight)]],
            None if bias is None else self._gradient_views[names[id(bias)]],
        )

    def hidden(self, pack: Pack, prefixes: Prefixes | None = None) -> torch.Tensor:
        """Returns last hidden states [nodes, width]. Each node has the state that it has in its own sequence alone.

        `prefixes` keeps a prefix from one pack to the next; without it the prefix is computed for this pack alone.
        """
        prefixes = prefixes or Prefixes()
        if prefixes.is_new(pack.prefix):
            prefixes.end()
            if pack.prefix is not None:
                prefixes.begin(pack.prefix, self._prefix_states(pack.prefix, pack.prefix_routing))
        return self._forward(pack, make_plan(pack, self.device, lambda: self.check(), prefixes.states))

    def _prefix_states(self, tokens: np.ndarray, routing: Routing | None = None) -> PrefixStates:
        states = PrefixStates()
        pack = untrained_pack(tokens, routing)
        self._forward(pack, make_plan(pack, self.device, lambda: self.check(), states, is_prefix=True))
        return states

    def _forward(self, pack: Pack, plan: Plan) -> torch.Tensor:
        self.routers.begin(plan.routed)
        ids = torch.from_numpy(pack.token_ids).to(self.device).unsqueeze(0)
        depths = torch.from_numpy(pack.depths).to(self.device).unsqueeze(0)
        return self.model.base_model(
            input_ids=ids, position_ids=depths, use_cache=False, trie_plan=plan
        ).last_hidden_state[0]

    @torch.no_grad()
    def infer(self, pack: Pack, prefixes: Prefixes | None = None) -> torch.Tensor:
        return self.hidden(pack, prefixes)

    @torch.no_grad()
    def logprobs(self, pack: Pack, prefixes: Prefixes | None = None) -> torch.Tensor:
        """Returns the log-probability of each trained token of the pack: [tokens], float32."""
        return token_logprobs(self.hidden(pack, prefixes), self.head, pack)

    def backward(self, pack: Pack, prefixes: Prefixes, slopes: Slopes, *, by_sequence: bool) -> torch.Tensor:
        """Adds a loss's gradient to the policy's (see `backward_through_head`). Returns the entropies [tokens]."""
        hidden = self.hidden(pack, prefixes)
        gradient, entropies = backward_through_head(
            hidden.detach(), self.head, pack, slopes, self.head_gradient(), by_sequence=by_sequence
        )
        hidden.backward(gradient)
        return entropies

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Computes `logits` with transformers' plain attention, which does not know packs.

        Those of a text model are computed by its multimodal model.
        """
        ours = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")
        self._around = around(self.whole, self.model) if self.whole else None
        try:
            yield
        finally:
            self._around = None
            self.model.set_attn_implementation(ours)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns transformers' own logits of one sequence: [tokens, vocabulary]. It is called within `eager`."""
        return (self._around or self.model)(input_ids=tokens[None], use_cache=False).logits[0]

    def idle(self, *, backward: bool) -> None:
        raise NotImplementedError("a group of one rank has no packs of other ranks")

    def idle_prefix(self) -> PrefixStates:
        raise NotImplementedError("a group of one rank has no packs of other ranks")

    def weights(self) -> dict[str, torch.Tensor]:
        """Returns compute weights and persistent buffers, named and laid out as in the base model's files.

        transformers fuses the experts of a mixture into one tensor when it loads a model; this undoes it.
        """
        return {name: each for chunk in self.model_chunks() for name, each in chunk.items()}

    def model_chunks(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields `weights` in parts."""
        buffers = {name for name, _ in self.model.named_buffers(remove_duplicate=False)}
        rounded = {
            name: each if name in buffers else each.to(self.compute.dtype)
            for name, each in self.model.state_dict().items()
        }
        yield revert_weight_conversion(self.model, without_adapter(rounded))

    def adapter(self) -> dict[str, torch.Tensor]:
        """Returns the compute weights of the adapter."""
        return self._views(self.compute)

    def weight_chunks(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields in parts what a checkpoint's own files of weights hold: the model, or its adapter as peft names it."""
        if self.lora is None:
            yield from self.model_chunks()
        else:
            yield {self.name_in_adapter(name): tensor for name, tensor in self.adapter().items()}

    def name_in_adapter(self, name: str) -> str:
        """Returns the name that a parameter of the adapter has in its file: a part of the model that engines have."""
        return peft_name(name if self.place is None else self.place.in_whole(name))

    def read_adapter(self, file: Path) -> None:
        """Takes the adapter of a checkpoint."""
        weights = self._views(self.master)
        for name, tensor in adapter_tensors(file, weights, self.name_in_adapter):
            weights[name].copy_(tensor)
        self.refresh()

    def tied_names(self) -> set[str]:
        """Returns the names of parameters that are tied to another one. A base model's files may leave them out."""
        own = without_adapter(dict(self.model.named_parameters()) | dict(self.model.named_buffers()))
        return set(without_adapter(self.model.state_dict())) - set(own)


def in_float32_instead(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns True where passes compute in float32 with the values of the compute weights."""
    return dtype == torch.bfloat16 and not computes_in_bfloat16(device)


def layers_of(model: nn.Module) -> nn.ModuleList:
    """Returns the layers of a language model."""
    return next(each for each in model.base_model.children() if isinstance(each, nn.ModuleList))


def load_model(folder: Path, text: TextModel) -> PreTrainedModel:
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, config=text.config, key_mapping=text.key_mapping, dtype="auto", attn_implementation=register()
        )
    except (SafetensorError, RuntimeError, ValueError, OSError, ImportError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        raise cannot_be_loaded(folder, error) from error
