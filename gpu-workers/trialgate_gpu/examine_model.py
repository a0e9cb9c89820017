"""Says whether the trainer can train a model and what is known of it, without the model's weights.

python -m trialgate_gpu.examine_model MODEL [--name NAME] [--no-run]

MODEL is a folder, or a name of which the configuration alone is downloaded; NAME is how messages call it. A small
random model of the same configuration is compared with plain PyTorch, unless `--no-run`. The last line of the output is
a `Finding` in JSON, or, with exit code 3, why there is no configuration.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import re
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from .base import find_config
from .errors import GpuWorkerError
from .gradient_check import gradient_deviation, sharded_deviation
from .logit_shape import LogitShape
from .lora import ALL_LINEAR, Lora, add_adapter
from .outline import outline
from .policy import Policy
from .self_check import differences, fault_in
from .small_model import small_config, write_small

MISSING = 3
CPU = torch.device("cpu")
# In float32 sound small models differ by less than 1e-5.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Deviations:
    """Of a small model in float32: the largest differences of log-probabilities, in nats, and of gradients, relative to
    their norm. `lora_gradient` is None when the model can have no adapter. `ranks_gradient` is that of the model as
    ranks divide it, and None when they cannot.
    """

    packed_alone: float
    alone_eager: float
    gradient: float
    ranks_gradient: float | None
    lora_gradient: float | None

    @property
    def fault(self) -> str | None:
        if why := fault_in({"packed_alone": self.packed_alone, "alone_eager": self.alone_eager}, TOLERANCE):
            return f"in a small model of its configuration, {why}"
        worst = max(self.gradient, self.lora_gradient or 0.0)
        if not worst <= TOLERANCE:
            return (
                f"the gradient of a small model of its configuration differs from autograd's by {worst:.2g} of its norm"
            )
        return None


@dataclass(frozen=True)
class Finding:
    """`reason` says why the model cannot be trained. What was not found out is None.

    `attention` has the number of layers of each kind, `lora` the `target_modules` of an adapter, `logit_scale` and
    `logit_cap` are `LogitShape`'s, `vllm` says whether the vLLM that is installed has the architecture, and `not_run`
    why there are no deviations.
    """

    model: str
    reason: str | None = None
    family: str | None = None
    architecture: str | None = None
    parameters: int | None = None
    attention: dict[str, int] | None = None
    window: int | None = None
    experts: int | None = None
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
    found = _describe(model, name)
    return _with_deviations(found, model.config) if run else found


def _describe(model: PreTrainedModel, name: str) -> Finding:
    config = model.config.get_text_config()
    shape = LogitShape.of(config)
    attention = _attention(config)
    architecture = type(model).__name__
    found = Finding(
        name,
        family=model.config.model_type,
        architecture=architecture,
        parameters=sum(each.numel() for each in model.parameters()),
        attention=attention,
        window=getattr(config, "sliding_window", None) if "sliding_attention" in attention else None,
        experts=_experts(config),
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
    for targets in (ALL_LINEAR, sorted(linear)):
        try:
            add_adapter(copy.deepcopy(model), _small_lora(targets))
        except GpuWorkerError:
            continue
        return [targets] if isinstance(targets, str) else targets
    return None


def _small_lora(targets: list[str] | str) -> Lora:
    return Lora(4, 8.0, ALL_LINEAR if targets in (ALL_LINEAR, [ALL_LINEAR]) else targets, 0)


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


def _with_deviations(found: Finding, config: PretrainedConfig) -> Finding:
    with tempfile.TemporaryDirectory(prefix="trialgate-small-") as made:
        folder = Path(made)
        # Each family has rules of its own for its sizes, and a configuration may break them in any way.
        try:
            write_small(small_config(config), folder)
            policy = Policy(folder, CPU, torch.float32)
            with torch.no_grad(), policy.eager():
                policy.logits(torch.arange(8))
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), "")
            return replace(found, not_run=f"no small model of its configuration runs ({type(error).__name__}: {first})")
        try:
            deviations = _deviations(policy, folder, found.lora)
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            return replace(
                found, reason=_refusal(found, f"a small model of its configuration fails in this trainer ({first})")
            )
    why = deviations.fault
    return replace(found, deviations=deviations, reason=_refusal(found, why) if why else None)


def _deviations(policy: Policy, folder: Path, targets: list[str] | None) -> Deviations:
    nats = differences(policy)
    gradients = {"gradient": gradient_deviation(policy), "ranks_gradient": _of_ranks(policy, folder)}
    if targets is None:
        return Deviations(**nats, **gradients, lora_gradient=None)
    adapted = Policy(folder, CPU, torch.float32, _small_lora(targets))
    # The first adapter changes nothing, so half of its gradient would be 0.
    torch.nn.init.normal_(adapted.master, std=0.1, generator=torch.Generator().manual_seed(0))
    adapted.refresh()
    return Deviations(**nats, **gradients, lora_gradient=gradient_deviation(adapted))


def _of_ranks(policy: Policy, folder: Path) -> float | None:
    """A model that ranks cannot divide is trained on one."""
    try:
        return sharded_deviation(policy, folder)
    except Exception as error:
        logging.getLogger(__name__).warning("ranks cannot divide it: %s", error)
        return None


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
            sys.exit(MISSING)
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
