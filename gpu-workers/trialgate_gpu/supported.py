"""Refuses models that this trainer would train wrongly, from their configuration."""

from __future__ import annotations

from pathlib import Path

from transformers import PretrainedConfig

from .errors import GpuWorkerError

# These settings scale or cap the logits after the head. The head's gradient does not include that.
HEAD_SCALES = ("final_logit_softcapping", "logits_scaling", "logit_scale")
ATTENTION_LAYERS = ("full_attention", "sliding_attention", "attention")
LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


def why_unsupported(config: PretrainedConfig) -> str | None:
    for name in HEAD_SCALES:
        if getattr(config, name, None) not in (None, 1.0):
            return f"its setting `{name}` changes the logits behind the head"
    kinds = set(getattr(config, "layer_types", None) or ()) - set(ATTENTION_LAYERS)
    if kinds:
        return f"its layers of kind {', '.join(sorted(kinds))} keep a state that sequences in one pack would share"
    if getattr(config, "attention_chunk_size", None):
        return "its attention is cut into chunks (`attention_chunk_size`)"
    for rope in _rope_types(config):
        if rope in LENGTH_DEPENDENT_ROPE:
            return f"its rotary frequencies ({rope}) depend on the longest sequence of a pack"
    return None


def _rope_types(config: PretrainedConfig) -> list[str]:
    """Returns the rope types. transformers has one table of rotary settings, or one for each kind of layer."""
    given = getattr(config, "rope_parameters", None) or {}
    tables = [given, *(value for value in given.values() if isinstance(value, dict))]
    return [str(table["rope_type"]) for table in tables if "rope_type" in table]


def require_supported(config: PretrainedConfig, folder: Path) -> None:
    """Raises `BadModel` with the model's kind and the reason. `self_check.py` finds what no configuration shows."""
    # A multimodal model has the settings of its language model in a configuration of their own.
    if why := why_unsupported(config.get_text_config()):
        raise GpuWorkerError(
            "BadModel", f"model {folder} ({config.model_type}) cannot be trained: {why}; choose another model"
        )
