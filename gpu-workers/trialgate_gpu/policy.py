"""The model as the trainer sees it: bfloat16 compute weights, flat float32 master weights and gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from .attention import make_plan, register
from .errors import GpuWorkerError
from .pack import Pack

UNSUPPORTED = ("final_logit_softcapping", "logits_scaling", "logit_scale")


class Policy:
    """Master weights, in the order of `names`, are views of one flat tensor: one optimiser call, one contiguous file.

    `check` is called many times in each pass and may raise to end it.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> None:
        config = AutoConfig.from_pretrained(folder)
        for name in UNSUPPORTED:
            if getattr(config, name, None) not in (None, 1.0):
                raise GpuWorkerError(
                    "BadModel", f"{folder}: models with `{name}` cannot be trained yet: choose another model"
                )
        self.device = device
        source = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation=register())
        self.names = [name for name, _ in source.named_parameters()]
        shapes = [p.shape for p in source.parameters()]
        self.shapes = dict(zip(self.names, shapes, strict=True))
        self.master = torch.cat([p.detach().float().reshape(-1) for p in source.parameters()]).to(device)
        self.model = source.to(device=device, dtype=dtype).train()
        self.compute = torch.empty(self.master.numel(), dtype=dtype, device=device)
        self.gradient: torch.Tensor | None = None
        self.check: Callable[[], None] = lambda: None
        views = self._views(self.compute)
        for name, parameter in self.model.named_parameters():
            parameter.data = views[name]
        self.refresh()

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        pieces = flat.split([s.numel() for s in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def refresh(self) -> None:
        """Rounds the master weights into the compute weights."""
        self.compute.copy_(self.master)

    def start_gradient(self) -> torch.Tensor:
        """A zeroed flat float32 gradient, into which every backward pass adds."""
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
    def head(self) -> nn.Linear:
        """The output embedding: logits = hidden @ weight.T (+ bias)."""
        return self.model.get_output_embeddings()

    def head_gradient(self) -> torch.Tensor:
        """Where the head's weight gradient goes: the embedding's when they are tied."""
        name = next(n for n, p in self.model.named_parameters() if p is self.head.weight)
        return self._gradient_views[name]

    def hidden(self, pack: Pack) -> torch.Tensor:
        """Last hidden states [nodes, width], each node as if alone in its own sequence."""
        plan = make_plan(pack, self.device, lambda: self.check())
        ids = torch.from_numpy(pack.token_ids).to(self.device).unsqueeze(0)
        depths = torch.from_numpy(pack.depths).to(self.device).unsqueeze(0)
        return self.model.base_model(
            input_ids=ids, position_ids=depths, use_cache=False, trie_plan=plan
        ).last_hidden_state[0]

    @torch.no_grad()
    def infer(self, pack: Pack) -> torch.Tensor:
        return self.hidden(pack)

    def weights(self) -> dict[str, np.ndarray]:
        """The compute weights by name, as the raw 16-bit patterns (numpy has no bfloat16)."""
        flat = self.compute.cpu().view(torch.int16)
        return {name: view.numpy() for name, view in self._views(flat).items()}
