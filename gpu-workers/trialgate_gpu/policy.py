"""Holds the model as the trainer uses it: bfloat16 compute weights, flat float32 master weights and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from .attention import Plan, make_plan, register
from .device import is_out_of_memory
from .errors import GpuWorkerError
from .head import Float32Head, Head, HeadGradient
from .pack import Pack, untrained_pack
from .prefix import Prefixes, PrefixStates
from .supported import require_supported


class Policy:
    """Master weights, in the order of `names`, are views of one flat tensor: one optimizer call, one contiguous file.

    Only parameters are rounded to the compute dtype. Buffers keep the dtype that transformers gave them: rotary
    frequencies in bfloat16 would rotate far tokens by a wrong angle. `check` is called many times in each pass and may
    raise to end it.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> None:
        config = AutoConfig.from_pretrained(folder)
        require_supported(config, folder)
        self.device = device
        # In eval mode there is no dropout, so the log-probabilities are those that an engine computes.
        source = _load(folder).eval()
        self.names = [name for name, _ in source.named_parameters()]
        shapes = [p.shape for p in source.parameters()]
        self.shapes = dict(zip(self.names, shapes, strict=True))
        self.master = torch.cat([p.detach().float().reshape(-1) for p in source.parameters()]).to(device)
        self.compute = torch.empty(self.master.numel(), dtype=dtype, device=device)
        for parameter in source.parameters():
            parameter.data = parameter.data.new_empty(0)
        self.model = source.to(device)
        self.gradient: torch.Tensor | None = None
        self.check: Callable[[], None] = lambda: None
        # `model`: logits are computed in the compute weights' dtype; `float32`: see `Float32Head`.
        self.head_dtype = "model"
        self._use(self.compute)
        self.refresh()

    def _use(self, flat: torch.Tensor) -> None:
        views = self._views(flat)
        for name, parameter in self.model.named_parameters():
            parameter.data = views[name]

    @contextmanager
    def in_float32(self, *, rounded: bool = False) -> Iterator[None]:
        """Computes in float32 with the master weights, or with the values of the compute weights if `rounded`."""
        self._use(self.compute.float() if rounded else self.master)
        try:
            yield
        finally:
            self._use(self.compute)

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        pieces = flat.split([s.numel() for s in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def decayed(self) -> list[torch.Tensor]:
        """Returns the master weights to which weight decay applies: matrices, not norms and biases."""
        return [view for view in self._views(self.master).values() if view.dim() > 1]

    def refresh(self) -> None:
        """Rounds the master weights into the compute weights."""
        self.compute.copy_(self.master)

    def start_gradient(self) -> torch.Tensor:
        """Returns the flat float32 gradient, zeroed. Every backward pass adds to it."""
        if self.gradient is None:
            self.gradient = torch.zeros_like(self.master)
            views = self._views(self.gradient)
            for name, parameter in self.model.named_parameters():
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
        """Returns the output embedding: logits = hidden @ weight.T (+ bias)."""
        linear = self.model.get_output_embeddings()
        return Float32Head(linear) if self.head_dtype == "float32" else linear

    def head_gradient(self) -> HeadGradient:
        """Returns the tensors for the head's gradient. When the weights are tied, the embedding's gradient has both."""
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
                prefixes.begin(pack.prefix, self._prefix_states(pack.prefix))
        return self._forward(pack, make_plan(pack, self.device, lambda: self.check(), prefixes.states))

    def _prefix_states(self, tokens: np.ndarray) -> PrefixStates:
        states = PrefixStates()
        pack = untrained_pack(tokens)
        self._forward(pack, make_plan(pack, self.device, lambda: self.check(), states, is_prefix=True))
        return states

    def _forward(self, pack: Pack, plan: Plan) -> torch.Tensor:
        ids = torch.from_numpy(pack.token_ids).to(self.device).unsqueeze(0)
        depths = torch.from_numpy(pack.depths).to(self.device).unsqueeze(0)
        return self.model.base_model(
            input_ids=ids, position_ids=depths, use_cache=False, trie_plan=plan
        ).last_hidden_state[0]

    @torch.no_grad()
    def infer(self, pack: Pack, prefixes: Prefixes | None = None) -> torch.Tensor:
        return self.hidden(pack, prefixes)

    def weights(self) -> dict[str, torch.Tensor]:
        """Returns compute weights and persistent buffers, named and laid out as in the base model's files.

        transformers fuses the experts of a mixture into one tensor when it loads a model; this undoes it.
        """
        return revert_weight_conversion(self.model, self.model.state_dict())

    def tied_names(self) -> set[str]:
        """Returns the names of parameters that are tied to another one. A base model's files may leave them out."""
        return set(self.model.state_dict()) - set(self.names) - {name for name, _ in self.model.named_buffers()}


def _load(folder: Path) -> PreTrainedModel:
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation=register())
    except (SafetensorError, RuntimeError, ValueError, OSError) as error:
        if is_out_of_memory(error):
            raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        # Version 0 of a run has links to the base model's files.
        model = (folder / "config.json").resolve().parent
        what = f"model {model} cannot be loaded ({first}): its files are cut short, or not of its configuration"
        raise GpuWorkerError("BadModel", f"{what}; download it again or choose another model") from error
