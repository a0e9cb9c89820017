"""Replays the experts that the engine chose in the trainer's passes (R3, arXiv 2510.11370), and counts loads.

Rounding sends some tokens to other experts in the trainer than in the engine, and each such token is computed by
another function. In a replayed pass a router takes the recorded experts, and weights them by its own logits: the
gradient flows through the router as without a replay.

The router is transformers' own. Only its last choice, a `topk` over all experts, is answered by the record, so that
each family's way from logits to weights stays its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .attention import Plan, RoutedPass
from .errors import GpuWorkerError
from .group.world import World
from .pack import Chain, shared_prefix
from .prepare import PreparedBatch
from .recurrent import with_plan
from .routing import Mixture, read_routing

# The routers that tests have shown to replay as a plain reference does (`router_replay_test.py`).
PROVEN = {
    *("MixtralTopKRouter", "Qwen2MoeTopKRouter", "Qwen3MoeTopKRouter", "OlmoeTopKRouter", "GptOssTopKRouter"),
    *("Qwen3NextTopKRouter", "Qwen3_5MoeTopKRouter", "GraniteMoeTopKRouter", "GraniteMoeHybridTopKRouter"),
    *("DeepseekV3TopkRouter", "Glm4MoeTopkRouter", "KimiLinearTopkRouter", "NemotronHTopkRouter"),
    *("Lfm2MoeTopKRouter", "MiniMaxM2TopKRouter", "Ernie4_5_MoeTopKRouter"),
}
TOPK = (torch.topk, torch.Tensor.topk)


class _Chosen(TorchFunctionMode):
    """Answers a `topk` over all experts with the recorded ones, for the tokens that have a record."""

    def __init__(self, router: Router, routed: RoutedPass, chosen: torch.Tensor) -> None:
        super().__init__()
        self.router, self.routed, self.chosen = router, routed, chosen
        self.has_answered = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if function not in TOPK or found.indices.shape != self.chosen.shape:
            return found
        scores = args[0] if args else kwargs["input"]
        if scores.shape[-1] != self.router.experts:
            return found
        self.has_answered = True
        known = self.routed.known
        own, chosen = found.indices.sort(-1).values, self.chosen.sort(-1).values
        self.routed.differs[self.router.place] = known & (own != chosen).any(-1)
        indices = torch.where(known[:, None], self.chosen, found.indices)
        return torch.return_types.topk((scores.gather(-1, indices), indices))


class Router:
    """Stands in for the `forward` of a router. Without a plan it is that `forward`."""

    def __init__(self, module: nn.Module, place: int) -> None:
        self.forward, self.place = module.forward, place
        self.experts, self.top_k = module.num_experts, module.top_k
        self.plan: Plan | None = None
        self.load: torch.Tensor | None = None

    def __call__(self, *args: Any, **given: Any) -> Any:
        if self.plan is None:
            return self.forward(*args, **given)
        routed = self.plan.routed
        if routed is None:
            made = self.forward(*args, **given)
        else:
            with _Chosen(self, routed, routed.experts[:, self.place].long()) as chosen:
                made = self.forward(*args, **given)
            if not chosen.has_answered:
                what = "a router of this transformers does not choose by `topk`, so its experts cannot be replayed"
                raise GpuWorkerError("BadSettings", f"{what}; set `enable_router_replay` to false")
        if torch.is_grad_enabled() and not self.plan.is_idle:
            self._count(made)
        return made

    def _count(self, made: tuple[torch.Tensor, ...]) -> None:
        indices = next(each for each in made if not each.is_floating_point()).flatten()
        if self.load is None:
            self.load = torch.zeros(self.experts, dtype=torch.int64, device=indices.device)
        self.load.index_add_(0, indices, torch.ones_like(indices))


@dataclass(frozen=True)
class RoutedLayers:
    """The router of each layer that has a proven one, and the kinds of modules whose experts have another."""

    layers: int
    routers: dict[int, nn.Module]
    unproven: set[str]

    @staticmethod
    def of(layers: nn.ModuleList) -> RoutedLayers:
        found, unproven = {}, set()
        for number, layer in enumerate(layers):
            for module in layer.modules():
                is_proven = [each for each in module.modules() if type(each).__name__ in PROVEN]
                if is_proven == [module]:
                    found[number] = module
                elif not is_proven and hasattr(module, "experts"):
                    unproven.add(type(module).__name__)
        return RoutedLayers(len(layers), found, unproven)

    @property
    def why_not_replayed(self) -> str | None:
        if self.unproven:
            kinds = ", ".join(sorted(self.unproven))
            return f"the router of its layers of kind {kinds} is not one of those that are shown to replay"
        if not self.routers:
            return "it is no mixture of experts"
        if len({(each.num_experts, each.top_k) for each in self.routers.values()}) > 1:
            return "its layers have different numbers of experts"
        return None

    def require_mixture(self) -> Mixture:
        """Raises `BadSettings` for a model that cannot replay."""
        if why := self.why_not_replayed:
            what = f"the run's model cannot replay its engine's experts: {why}"
            how = "leave `enable_router_replay` out, or `configure RUN enable_router_replay=false` for a run under way"
            raise GpuWorkerError("BadSettings", f"{what}; {how}")
        first = next(iter(self.routers.values()))
        return Mixture(self.layers, tuple(self.routers), first.num_experts, first.top_k)


class Routers:
    """Lets the routers of a model's layers follow the plan of each pass, and has what they did since `reset`."""

    def __init__(self, layers: nn.ModuleList) -> None:
        self.found = RoutedLayers.of(layers)
        self._all: list[Router] = []
        for number, module in self.found.routers.items():
            module.forward = router = Router(module, len(self._all))
            layers[number].forward = partial(with_plan, layers[number].forward, router)
            self._all.append(router)
        self._counts: list[torch.Tensor] = []
        self._pass: RoutedPass | None = None

    def reset(self) -> None:
        self._counts, self._pass = [], None
        for router in self._all:
            router.load = None

    def begin(self, routed: RoutedPass | None) -> None:
        """Counts what the pass before did, which is then complete, and drops it."""
        if self._pass is not None:
            self._counts.append(self._pass.counts())
        self._pass = routed

    def metrics(self, world: World) -> dict[str, float]:
        """Returns those of the passes since `reset`, of all ranks together."""
        return self._load_metrics(world) | self._replay_metrics(world)

    def _load_metrics(self, world: World) -> dict[str, float]:
        loads = [torch.zeros(r.experts) if r.load is None else r.load.cpu() for r in self._all]
        sizes = [len(load) for load in loads]
        summed = world.sums([float(each) for load in loads for each in load])
        over = []
        for load in np.split(np.array(summed), np.cumsum(sizes)[:-1]) if loads else ():
            if load.any():
                over.append(load.max() / load.mean() - 1)
        return {"router/max_vio/mean": float(np.mean(over)), "router/max_vio/max": float(max(over))} if over else {}

    def _replay_metrics(self, world: World) -> dict[str, float]:
        self.begin(None)
        nothing = torch.zeros(4, dtype=torch.int64)
        counts = torch.stack([nothing, *(each.cpu() for each in self._counts)]).sum(0)
        tokens, known, differs, choices = world.sums(counts.tolist())
        if tokens == 0:
            return {}
        return {
            "router_replay/replayed_fraction": known / tokens,
            "router_replay/differing_token_fraction": differs / max(known, 1),
            "router_replay/differing_choice_fraction": choices / max(known * len(self._all), 1),
        }


def with_routing(prepared: PreparedBatch, mixture: Mixture) -> PreparedBatch:
    """Returns the batch with the experts that the record has for the tokens of its chains, and without the record.

    A batch that was not made for router replay is returned without any. Raises `BadBatch` when a batch that was has
    none of use for any token, or some that are not of this model.
    """
    if all(sample.routed_experts is None for sample in prepared.samples):
        return replace(prepared, metrics=prepared.metrics | {"router_replay/replayed_fraction": 0.0})
    made, left_out = [], 0
    for each in prepared.chains:
        sample = prepared.samples[each.sample]
        try:
            routing, wrong = read_routing(sample.routed_experts or (), len(each.inputs), mixture)
        except ValueError as error:
            what = f"the `routed_experts` of trial {sample.trial_id} are not of this model: {error}"
            how = "set `enable_router_replay` to false, or serve the run's model and redo the iteration"
            raise GpuWorkerError("BadBatch", f"{what}; {how}") from error
        made.append(replace(each, routing=routing))
        left_out += wrong
    if not any(each.routing.known.any() for each in made):
        what = "`enable_router_replay` is set, but the engines returned usable experts (`routed_experts`) for no token"
        if left_out:
            what += f" ({left_out} calls have another number of rows than tokens)"
        how = "start them with `--enable-return-routed-experts` and redo the iteration"
        raise GpuWorkerError("BadBatch", f"{what} of the batch: {how}, or set `enable_router_replay` to false")
    share_routing(made)
    samples = [replace(each, routed_experts=None) for each in prepared.samples]
    metrics = prepared.metrics | {"router_replay/calls_left_out": left_out}
    return replace(prepared, chains=made, samples=samples, metrics=metrics)


def share_routing(chains: list[Chain]) -> None:
    """Gives a token that several chains share one routing, in place: that of a chain that sampled it, else the first's.

    In the sorted order the chains of a token follow each other. So the best routing so far is handed on to the next
    chain, and what the last one has is handed back.
    """
    ranks = []
    above = 1 + max(each.sample for each in chains)
    for each in chains:
        # A token that this chain sampled is above any that it read; a lower sample is above a higher one.
        rank = np.where(each.routing.known, above - each.sample, 0)
        sampled = each.predictors[each.predictors + 1 < len(each.inputs)] + 1
        rank[sampled] += np.where(each.routing.known[sampled], above, 0)
        ranks.append(rank)
    order = sorted(range(len(chains)), key=lambda i: (chains[i].inputs.tolist(), chains[i].sample))
    pairs = list(pairwise(order))
    for source, target in [*pairs, *((after, before) for before, after in reversed(pairs))]:
        shared = shared_prefix(chains[source].inputs, chains[target].inputs)
        better = np.flatnonzero(ranks[source][:shared] > ranks[target][:shared])
        ranks[target][better] = ranks[source][better]
        chains[target].routing.experts[better] = chains[source].routing.experts[better]
        chains[target].routing.known[better] = True
