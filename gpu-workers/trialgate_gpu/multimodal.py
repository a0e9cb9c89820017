"""Finds the text model of a multimodal checkpoint, which is trained as any other model.

It is transformers' own class for the configuration of the text alone. Towers and projectors are never loaded: a
checkpoint's writer copies them from the files of the version before (`checkpoint.py`). That the text model is right is
not taken from a list: transformers' multimodal class is put around it, and must give the same log-probabilities for
text (`self_check.py`). Rotary positions of images (M-RoPE) are the same in all rows where there is only text.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMultimodalLM, PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, WeightTransform, rename_source_key

from .device import is_out_of_memory
from .errors import GpuWorkerError
from .tensor_file import stored_tensors

# In names of settings that hold the ids of tokens which stand for something that is no text.
MEDIA = re.compile(r"(image|video|audio|vision|boi|eoi|boa|eoa).*_(token_id|token_index)$")
HEAD = "lm_head.weight"
TOWERS = ("vision_config", "audio_config")


def towers_of(config: PretrainedConfig) -> list[str]:
    """Returns the names of the configurations of a model's parts that are not its text model."""
    text = config.get_text_config()
    # A model of text alone may have configurations of its own parts, such as MPT's of its attention.
    names = dict.fromkeys([*(config.sub_configs if text is not config else ()), *TOWERS])
    found = {name: getattr(config, name, None) for name in names}
    return [name for name, each in found.items() if each is not None and each is not text]


def is_multimodal(config: PretrainedConfig) -> bool:
    """Returns True for a model that has its text model as a part, also where its configuration names no tower."""
    return config.get_text_config() is not config


def text_config(config: PretrainedConfig, stored: Iterable[str] = ()) -> PretrainedConfig:
    """Returns the configuration of the model that is trained. `stored` has the names of the files' tensors."""
    if not is_multimodal(config):
        return config
    found = copy.deepcopy(config.get_text_config())
    found.dtype = config.dtype or found.dtype
    stored = list(stored)
    # Families differ in which of the two configurations has the true setting, and some have it in one. The files know.
    tied = {getattr(each, "tie_word_embeddings", None) for each in (config, found)}
    if stored and tied == {True, False}:
        found.tie_word_embeddings = not any(name.endswith(HEAD) for name in stored)
    return found


def with_text(config: PretrainedConfig, text: PretrainedConfig) -> PretrainedConfig:
    """Returns a copy of a multimodal configuration whose text model has the configuration `text`."""
    name = next(name for name in config.sub_configs if getattr(config, name) is config.get_text_config())
    made = copy.deepcopy(config)
    setattr(made, name, copy.deepcopy(text))
    return made


def media_tokens(config: PretrainedConfig) -> set[int]:
    """Returns the ids of the tokens that stand for images, sounds and the like."""
    names = [name for name in [*vars(config), *config.attribute_map] if MEDIA.search(name)]
    return {value for name in names if isinstance(value := getattr(config, name, None), int)}


class Places(NamedTuple):
    """Where the multimodal model and the text model have the same part: `base` is all but the output head."""

    base: str
    head: str
    text_base: str
    text_head: str

    def in_whole(self, name: str) -> str:
        """Returns the name that a part of the text model has in the multimodal one."""
        for own, there in ((self.text_head, self.head), (self.text_base, self.base)):
            if name.startswith(f"{own}."):
                return there + name.removeprefix(own)
        raise ValueError(f"the text model has {name} beside its layers and its head")


def without_weights(config: PretrainedConfig) -> PreTrainedModel:
    """Returns transformers' multimodal model on the device `meta`."""
    with torch.device("meta"):
        return AutoModelForMultimodalLM.from_config(
            copy.deepcopy(config), trust_remote_code=False, attn_implementation="eager"
        )


def places(whole: PreTrainedModel, text: PreTrainedModel) -> Places:
    """Raises `ValueError` when the multimodal model does not have the text model as one part with one head."""
    bases = [name for name, part in whole.named_modules() if type(part) is type(text.base_model)]
    if len(bases) != 1:
        raise ValueError(f"transformers' {type(whole).__name__} has {len(bases)} parts like {type(text).__name__}'s")
    heads = [_name_of(model, model.get_output_embeddings()) for model in (whole, text)]
    if None in heads:
        raise ValueError(f"transformers' {type(whole).__name__} has no output head for text")
    return Places(bases[0], heads[0], text.base_model_prefix, heads[1])


def _require_same_parts(whole: PreTrainedModel, text: PreTrainedModel, place: Places) -> None:
    names = {place.in_whole(name) for name in text.state_dict()}
    if lost := sorted(names - set(whole.state_dict())):
        raise ValueError(f"transformers' {type(whole).__name__} has no {lost[0]}, which its text model alone has")


def _name_of(model: nn.Module, part: nn.Module | None) -> str | None:
    return next((name for name, each in model.named_modules() if each is part), None)


def why_not_apart(config: PretrainedConfig, text: PreTrainedModel) -> str | None:
    """Returns why the text model of a multimodal one cannot be trained apart from it."""
    try:
        whole = without_weights(config)
        _require_same_parts(whole, text, places(whole, text))
    # A configuration of somebody else's may break transformers in any way.
    except Exception as error:
        return f"{what_it_is(config)}, and {_first_line(error)}"
    return None


def needs_towers(whole: PretrainedConfig | None, error: Exception) -> str | None:
    """Says so where the multimodal class failed at one of its parts that have no weights here."""
    if whole is None or "meta tensor" not in str(error):
        return None
    return f"{what_it_is(whole)}, and its class needs its towers for text too, which the trainer does not load"


def what_it_is(config: PretrainedConfig) -> str:
    towers = f" (`{'`, `'.join(towers_of(config))}`)" if towers_of(config) else ""
    return f"it is multimodal{towers}"


def around(config: PretrainedConfig, text: PreTrainedModel) -> PreTrainedModel:
    """Returns transformers' multimodal model with `text` as its text model. All else of it has no weights."""
    whole = without_weights(config)
    found = places(whole, text)
    whole.set_submodule(found.base, text.base_model)
    whole.set_submodule(found.head, text.get_output_embeddings())
    return whole.eval()


class TextModel(NamedTuple):
    """What is trained of a checkpoint. A multimodal one is `whole`, and has it at `place`.

    Each pattern of `key_mapping`, for transformers' loader, stands for the beginning of names in files, and has that
    of the text model's own names. transformers turns it round for the names of what is written.
    """

    config: PretrainedConfig
    whole: PretrainedConfig | None = None
    place: Places | None = None
    key_mapping: dict[str, str] | None = None


def read_text_model(folder: Path) -> TextModel:
    """Raises `BadModel` when the files have their text model where transformers does not look for it."""
    config = AutoConfig.from_pretrained(folder)
    if not is_multimodal(config):
        return TextModel(config)
    try:
        stored = list(stored_tensors(folder))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise cannot_be_loaded(folder, error) from error
    try:
        own = text_config(config, stored)
        with torch.device("meta"):
            text = AutoModelForCausalLM.from_config(own)
        whole = without_weights(config)
        place = places(whole, text)
        return TextModel(own, config, place, _key_mapping(whole, text, place, stored))
    # A configuration of somebody else's may break transformers in any way.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        why = f"it is multimodal, and {_first_line(error)}"
        what = f"model {_base(folder)} ({config.model_type}) cannot be trained: {why}"
        raise GpuWorkerError("BadModel", f"{what}; choose another model") from error


def cannot_be_loaded(folder: Path, error: Exception) -> GpuWorkerError:
    first = _first_line(error)
    what = f"model {_base(folder)} cannot be loaded ({first}): its files are cut short, or not of its configuration"
    return GpuWorkerError("BadModel", f"{what}; download it again or choose another model")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _base(folder: Path) -> Path:
    """Returns the folder of the base model's own files, to which version 0 of a run has links."""
    return (folder / "config.json").resolve().parent


def _key_mapping(whole: PreTrainedModel, text: PreTrainedModel, place: Places, stored: list[str]) -> dict[str, str]:
    """Raises `ValueError` unless transformers loads the same tensors into the text model, alone and as a part."""
    _require_same_parts(whole, text, place)
    embedding = f"{_name_of(text, text.get_input_embeddings())}.weight"
    in_whole = _targets(whole, stored)
    mapping = {}
    for name in (f"{place.text_head}.weight", embedding):
        base = place.text_head if name.startswith(f"{place.text_head}.") else place.text_base
        end = name.removeprefix(base)
        found = [source for source, target in in_whole.items() if target == place.in_whole(name)]
        if len(found) == 1 and found[0].endswith(end) and (beginning := found[0].removesuffix(end)):
            mapping[f"^{re.escape(beginning)}\\."] = f"{base}."
        elif name == embedding:
            where = f"transformers' {type(whole).__name__} loads its text model's {place.in_whole(name)} from none"
            raise ValueError(f"{where} of the files' tensors ({', '.join(stored[:3])}, …)")
    targets = {place.in_whole(name): name for name in text.state_dict()}
    in_text = _targets(text, stored, mapping)
    for source in stored:
        if targets.get(in_whole[source]) != (in_text[source] if in_text[source] in text.state_dict() else None):
            raise ValueError(f"the files' {source} would be {in_text[source]} in its text model alone")
    return mapping


def _targets(model: PreTrainedModel, stored: list[str], key_mapping: dict[str, str] | None = None) -> dict[str, str]:
    """Returns the name in the model of each tensor of the files."""
    of_model = model.state_dict()
    transforms = get_model_conversion_mapping(model, key_mapping)
    return {source: _target(source, transforms, model.base_model_prefix, of_model) for source in stored}


def _target(source: str, transforms: list[WeightTransform], prefix: str, of_model: dict[str, torch.Tensor]) -> str:
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    name, _ = rename_source_key(source, renamings, converters, prefix, of_model)
    if name not in of_model and source in of_model:
        return source
    return name


def set_conversions(model: PreTrainedModel, folder: Path, key_mapping: dict[str, str]) -> None:
    """Lets transformers give what is written the names of the files, as for a model that it has loaded from them."""
    transforms = get_model_conversion_mapping(model, key_mapping)
    of_model = model.state_dict()
    for source in stored_tensors(folder):
        _target(source, transforms, model.base_model_prefix, of_model)
    model._weight_conversions = [each for each in transforms if each.was_used()]
