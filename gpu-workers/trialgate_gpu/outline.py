"""Builds a model without its weights from its configuration, or says why the trainer cannot train it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from .attention import NAME, register
from .errors import GpuWorkerError
from .multimodal import is_multimodal, text_config, why_not_apart
from .policy import layers_of
from .supported import require_supported, why_not_carried

MOST_CHARACTERS = 600


def outline(folder: Path, name: str | None = None) -> PreTrainedModel:
    """Returns the model on the device `meta`. Raises `BadModel` with the reason when it cannot be trained.

    `name` is the model's in the message, where it is not the folder. Only `config.json` is read. Of a multimodal model
    its text model is returned. The trainer runs no code of a model; without `trust_remote_code`, transformers asks a
    person.
    """
    name = name or str(folder)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        require_supported(config, name)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                text_config(config), trust_remote_code=False, attn_implementation=register()
            )
    except GpuWorkerError:
        raise
    # A configuration of somebody else's may break transformers in any way.
    except Exception as error:
        if _has_code(folder):
            reason = "it comes with code of its own (`auto_map`), and the trainer runs no code of a model"
        elif error.args == (NAME,):
            reason = "its attention is code of its own, which the trainer's cannot replace"
        else:
            reason = f"transformers does not make it from its configuration ({first_sentence(error)})"
        raise _refused(name, reason) from error
    try:
        layers = layers_of(model)
    except StopIteration:
        reason = "its layers are not where a language model of text alone has them (is it multimodal, or an encoder?)"
        raise _refused(f"{name} ({config.model_type})", reason) from None
    reason = why_not_carried(config.get_text_config(), layers)
    if reason is None and is_multimodal(config):
        reason = why_not_apart(config, model)
    if reason:
        raise _refused(f"{name} ({config.model_type})", reason)
    return model


def first_sentence(error: Exception) -> str:
    """Returns the first line of the message, with the next one if it only introduces that."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])[:MOST_CHARACTERS]


def _has_code(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "config.json").read_text()).get("auto_map"))
    except (OSError, ValueError, AttributeError):
        return False


def _refused(name: str, why: str) -> GpuWorkerError:
    return GpuWorkerError("BadModel", f"model {name} cannot be trained: {why}; choose another model")
