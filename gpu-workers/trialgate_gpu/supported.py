"""Refuses models that this trainer would train wrongly, from their configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig

from .errors import GpuWorkerError
from .logit_shape import LogitShape
from .multimodal import is_multimodal, towers_of, what_it_is
from .recurrent import carries_state

ATTENTION_LAYERS = ("full_attention", "sliding_attention", "attention")
STATE_LAYERS = ("linear_attention", "conv", "hybrid", "hybrid_sliding")
# Layers in which no token sees another.
OTHER_LAYERS = ("mlp", "moe")
LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


def why_unsupported(config: PretrainedConfig) -> str | None:
    try:
        LogitShape.of(config)
    except ValueError as error:
        return str(error)
    if getattr(config, "attention_chunk_size", None):
        return "its attention is cut into chunks (`attention_chunk_size`)"
    kinds = set(getattr(config, "layer_types", None) or ()) - {*ATTENTION_LAYERS, *STATE_LAYERS, *OTHER_LAYERS}
    if kinds:
        return f"the trainer does not know its layers of kind {', '.join(sorted(kinds))}"
    for rope in _rope_types(config):
        if rope in LENGTH_DEPENDENT_ROPE:
            return f"its rotary frequencies ({rope}) depend on the longest sequence of a pack"
    return None


def _why_of_files(config: PretrainedConfig) -> str | None:
    """Finds quantized weights: transformers loads them into layers that have no weights to train, or not at all."""
    for each in (config, config.get_text_config()):
        if given := getattr(each, "quantization_config", None):
            how = given.get("quant_method") if isinstance(given, dict) else getattr(given, "quant_method", None)
            how = str(getattr(how, "value", how) or "`quantization_config`")
            return f"its weights are quantized ({how}); convert them to bfloat16 first, or take files that are not"
    return None


def _why_of_towers(config: PretrainedConfig) -> str | None:
    """Finds a multimodal model of whose text model there is no class. `multimodal.py` finds other reasons."""
    if towers_of(config) and not is_multimodal(config):
        return f"{what_it_is(config)}, and its text model has no configuration of its own"
    if is_multimodal(config) and type(config.get_text_config()) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return f"{what_it_is(config)}, and transformers has no class for its text model alone"
    return None


def _why_of_class(config: PretrainedConfig) -> str | None:
    """Finds models that keep a state and whose configuration does not say which layers do."""
    text = config.get_text_config()
    known = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(text), None)
    is_stateful = getattr(known, "_is_stateful", False)
    if is_stateful and not getattr(text, "layer_types", None):
        return "its layers keep a state that sequences in one pack would share (its configuration has no `layer_types`)"
    return None


def why_not_carried(config: PretrainedConfig, layers: Iterable[nn.Module]) -> str | None:
    """Finds layers that keep a state and cannot begin with that of another sequence's beginning."""
    kinds = getattr(config, "layer_types", None) or ()
    for kind, layer in zip(kinds, layers, strict=False):
        if kind in STATE_LAYERS and not any(carries_state(module) for module in layer.modules()):
            what = f"its layers of kind {kind} keep a state that sequences in one pack would share"
            return f"{what}: transformers' code for them does not begin with the state of a common prefix"
    return None


def _rope_types(config: PretrainedConfig) -> list[str]:
    """Returns the rope types. transformers has one table of rotary settings, or one for each kind of layer."""
    given = getattr(config, "rope_parameters", None) or {}
    tables = [given, *(value for value in given.values() if isinstance(value, dict))]
    return [str(table["rope_type"]) for table in tables if "rope_type" in table]


def require_supported(config: PretrainedConfig, folder: Path | str) -> None:
    """Raises `BadModel` with the model's kind and the reason. `self_check.py` finds what no configuration shows."""
    # A multimodal model has the settings of its language model in a configuration of their own.
    why = why_unsupported(config.get_text_config()) or _why_of_class(config)
    if why := why or _why_of_files(config) or _why_of_towers(config):
        raise GpuWorkerError(
            "BadModel", f"model {folder} ({config.model_type}) cannot be trained: {why}; choose another model"
        )
