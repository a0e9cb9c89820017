"""Says whether the trainer can train a model and what is known of it, without the model's weights.

python -m trialgate_gpu.examine_model MODEL [--name NAME] [--no-run]

MODEL is a folder, or a name of which the configuration alone is downloaded; NAME is how messages call it. A small
random model of the same configuration is compared with plain PyTorch, unless `--no-run`. The last line of the output is
a `Finding` in JSON, with null for what is not finite. Or it is why there is no configuration: with exit code 3
when there is no such model, with 4 when the hub could not be asked.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import re
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from .base import HubError, find_config
from .device import is_out_of_memory
from .errors import GpuWorkerError
from .gradient_check import gradient_deviation, sharded_deviation
from .logit_shape import LogitShape
from .lora import ALL_LINEAR, Lora, add_adapter
from .multimodal import is_multimodal, needs_towers, towers_of, with_text, without_weights
from .outline import first_sentence, outline
from .policy import Policy, layers_of
from .router_replay import RoutedLayers
from .self_check import differences, fault_in
from .small_model import small_config, write_small

MISSING = 3
UNREACHABLE = 4
CPU = torch.device("cpu")
# In float32 nearly all sound small models differ by less than 1e-5.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Deviations:
    """Of a small model in float32: the largest differences of log-probabilities, in nats, and of gradients, relative to
    their norm. `lora_gradient` is None when the model can have no adapter. `ranks_gradient` is that of the model as
    FSDP2 divides it, over one rank; it is None when that failed, and `no_ranks` says why.
    """

    packed_alone: float
    alone_eager: float
    gradient: float
    ranks_gradient: float | None
    lora_gradient: float | None
    no_ranks: str | None = None

    @property
    def fault(self) -> str | None:
        if not math.isfinite(self.packed_alone + self.alone_eager):
            return "in a small random model of its configuration, log-probabilities are not finite"
        if why := fault_in({"packed_alone": self.packed_alone, "alone_eager": self.alone_eager}, TOLERANCE):
            return f"in a small model of its configuration, {why}"
        for part, size in (("gradient", self.gradient), ("gradient of an adapter", self.lora_gradient)):
            if size is None or size <= TOLERANCE:
                continue
            how = f"differs from autograd's by {size:.2g} of its norm" if math.isfinite(size) else "is not finite"
            return f"the {part} of a small model of its configuration {how}"
        return None


@dataclass(frozen=True)
class Finding:
    """`reason` says why the model cannot be trained. What was not found out is None.

    `kept` names the configurations of a multimodal model's parts that are kept as they are; all else but the
    architecture is about its text model. `attention` has the number of layers of each kind, `replays` says whether a
    mixture's routers can replay an engine's experts, `lora` has the `target_modules` of an adapter, `logit_scale` and
    `logit_cap` are `LogitShape`'s, `vllm` says whether the vLLM that is installed has the architecture, and `not_run`
    why there are no deviations.
    """

    model: str
    reason: str | None = None
    family: str | None = None
    architecture: str | None = None
    kept: list[str] | None = None
    parameters: int | None = None
    attention: dict[str, int] | None = None
    window: int | None = None
    experts: int | None = None
    replays: bool | None = None
    logit_scale: float | None = None
    logit_cap: float | None = None
    tied_head: bool | None = None
    lora: list[str] | None = None
    vllm: bool | None = None
    deviations: Deviations | None = None
    not_run: str | None = None


def examine(folder: Path, name: str, *, run: bool = True) -> Finding:
    """Examines the model whose `config.json` is in `folder`."""
    try:
        model = outline(folder, name)
    except GpuWorkerError as error:
        return Finding(name, reason=str(error))
    config = AutoConfig.from_pretrained(folder)
    whole = config if is_multimodal(config) else None
    found = _describe(model, whole, name)
    return _with_deviations(found, model.config, whole) if run else found


def _describe(model: PreTrainedModel, whole: PretrainedConfig | None, name: str) -> Finding:
    config = model.config.get_text_config()
    shape = LogitShape.of(config)
    attention = _attention(config)
    architecture = type(without_weights(whole) if whole else model).__name__
    found = Finding(
        name,
        family=(whole or model.config).model_type,
        kept=towers_of(whole) if whole else [],
        architecture=architecture,
        parameters=sum(each.numel() for each in model.parameters()),
        attention=attention,
        window=getattr(config, "sliding_window", None) if "sliding_attention" in attention else None,
        experts=_experts(config),
        replays=RoutedLayers.of(layers_of(model)).why_not_replayed is None if _experts(config) else None,
        logit_scale=shape.scale,
        logit_cap=shape.cap,
        tied_head=bool(getattr(config, "tie_word_embeddings", False)),
        vllm=_vllm_has(architecture),
    )
    return replace(found, lora=_targets(_narrow(model)))


def _narrow(model: PreTrainedModel) -> PreTrainedModel:
    """Returns a small model without weights that has layers of the same names, where there is one."""
    try:
        with torch.device("meta"):
            return type(model)(small_config(model.config))
    except Exception:
        return model


def _targets(model: PreTrainedModel) -> list[str] | None:
    """Returns the `target_modules` of an adapter on as many layers as possible, or None when none can have one."""
    head = model.get_output_embeddings()
    linear = {
        name.rsplit(".", 1)[-1] for name, part in model.named_modules() if type(part) is nn.Linear and part is not head
    }
    if _takes(model, [ALL_LINEAR]):
        return [ALL_LINEAR]
    # A name may be that of a router too, which can have no adapter.
    alone = [name for name in sorted(linear) if _takes(model, [name])]
    return alone if alone and _takes(model, alone) else None


def _takes(model: PreTrainedModel, targets: list[str]) -> bool:
    try:
        add_adapter(copy.deepcopy(model), _small_lora(targets))
    except GpuWorkerError:
        return False
    return True


def _small_lora(targets: list[str]) -> Lora:
    return Lora(4, 8.0, ALL_LINEAR if targets == [ALL_LINEAR] else targets, 0)


def _attention(config: PretrainedConfig) -> dict[str, int]:
    if kinds := getattr(config, "layer_types", None):
        return dict(Counter(kinds))
    is_sliding = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return {"sliding_attention" if is_sliding else "full_attention": config.num_hidden_layers}


def _experts(config: PretrainedConfig) -> int | None:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((count for name in names if (count := getattr(config, name, None))), None)


def _vllm_has(architecture: str) -> bool | None:
    """Reads the list of vLLM, whose import takes many seconds."""
    if (vllm := find_spec("vllm")) is None or vllm.origin is None:
        return None
    registry = Path(vllm.origin).parent / "model_executor" / "models" / "registry.py"
    if not registry.is_file():
        return None
    return re.search(rf'^    "{architecture}": ', registry.read_text(), re.MULTILINE) is not None


def _with_deviations(found: Finding, config: PretrainedConfig, whole: PretrainedConfig | None) -> Finding:
    with tempfile.TemporaryDirectory(prefix="trialgate-small-") as made:
        folder = Path(made)
        # Each family has rules of its own for its sizes, and a configuration may break them in any way.
        try:
            small = small_config(config)
            write_small(small, folder)
            policy = Policy(folder, CPU, torch.float32)
            with torch.no_grad(), policy.eager():
                policy.logits(torch.arange(8))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            why = f"{type(error).__name__}: {first_sentence(error)}"
            return replace(found, not_run=f"no small model of its configuration runs ({why})")
        try:
            policy.whole = with_text(whole, small) if whole else None
            deviations = _deviations(policy, folder, found.lora)
        except Exception as error:
            # Without memory for it, nothing is known of the model.
            if is_out_of_memory(error):
                raise
            why = f"a small model of its configuration fails in this trainer ({first_sentence(error)})"
            return replace(found, reason=_refusal(found, needs_towers(whole, error) or why))
    why = deviations.fault
    names = LogitShape.settings_of(config.get_text_config())
    if why and names and whole is None and deviations.alone_eager > TOLERANCE:
        why += f" (the trainer applies its `{'`, `'.join(names)}`; remove from `config.json` what the family does not)"
    return replace(found, deviations=deviations, reason=_refusal(found, why) if why else None)


def _deviations(policy: Policy, folder: Path, targets: list[str] | None) -> Deviations:
    nats = differences(policy)
    of_ranks, no_ranks = _of_ranks(policy, folder)
    found = Deviations(**nats, gradient=gradient_deviation(policy), ranks_gradient=of_ranks, lora_gradient=None)
    found = replace(found, no_ranks=no_ranks)
    if targets is None:
        return found
    adapted = Policy(folder, CPU, torch.float32, _small_lora(targets))
    adapted.whole = policy.whole
    # The first adapter changes nothing, so half of its gradient would be 0.
    torch.nn.init.normal_(adapted.master, std=0.1, generator=torch.Generator().manual_seed(0))
    adapted.refresh()
    return replace(found, lora_gradient=gradient_deviation(adapted))


def _of_ranks(policy: Policy, folder: Path) -> tuple[float | None, str | None]:
    """Returns the deviation, or why there is none. A model that FSDP2 does not divide is trained on one rank."""
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    except Exception as error:
        return None, f"could not be tried here ({first_sentence(error)})"
    try:
        return sharded_deviation(policy, folder), None
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None, f"one alone: FSDP2 does not divide it ({first_sentence(error)})"
    finally:
        dist.destroy_process_group()


def _refusal(found: Finding, why: str) -> str:
    return f"model {found.model} ({found.family}) cannot be trained: {why}; choose another model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--name")
    parser.add_argument("--no-run", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trialgate-config-") as made:
        try:
            found = examine(find_config(given.model, Path(made)), given.name or given.model, run=not given.no_run)
        except GpuWorkerError as error:
            print(error)
            sys.exit(UNREACHABLE if isinstance(error, HubError) else MISSING)
    print(to_json(found))


def to_json(found: Finding) -> str:
    """Returns one line. JSON has no number that is not finite."""
    given = asdict(found)
    if deviations := given["deviations"]:
        given["deviations"] = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in deviations.items()
        }
    return json.dumps(given, allow_nan=False)


if __name__ == "__main__":
    main()
