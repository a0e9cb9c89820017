"""Reads a model's weights for its ranks, one at a time.

Tensors that transformers joins when it loads a model, such as the experts of a mixture, are joined here by its own
rules, those of one weight at a time. Otherwise transformers loads the whole model into the main memory of rank 0: where
it divides a tensor of the files, or they are quantized or no safetensors.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    build_glob_alternation,
    dot_natural_key,
    rename_source_key,
)

from ..attention import register
from ..errors import GpuWorkerError
from ..lora import ADAPTER_PARTS, Lora, add_adapter
from ..multimodal import TextModel
from ..policy import load_model
from ..tensor_file import DTYPES, tensor_files
from .fit import main_memory_room

# Numbers that a cast turns into each other. A quantized tensor needs more.
FLOATS = {name for dtype, name in DTYPES.items() if dtype.is_floating_point}


class WeightSource(Protocol):
    """`buffers` are those of the loaded model."""

    buffers: dict[str, torch.Tensor]
    dtypes: dict[str, torch.dtype]

    def weight(self, name: str) -> torch.Tensor:
        """Returns a parameter, by the name that it has in the model with its adapter."""


class _Loaded:
    def __init__(self, folder: Path, text: TextModel, lora: Lora | None) -> None:
        model = load_model(folder, text).eval()
        if lora is not None:
            add_adapter(model, lora)
        self.buffers = dict(model.named_buffers())
        self._weights = dict(model.named_parameters())
        self.dtypes = {name: each.dtype for name, each in self._weights.items()}

    def weight(self, name: str) -> torch.Tensor:
        return self._weights[name].detach()


@dataclass(frozen=True)
class _Stored:
    """A tensor of the files."""

    file: Path
    shape: list[int]
    dtype: str


@dataclass(frozen=True)
class _Recipe:
    """How a weight is made of the files' tensors: `converter` joins `sources`, names with its patterns for them.

    Without a converter there is one source, which is the weight.
    """

    converter: WeightConverter | None
    sources: list[tuple[str, str | None]] = field(default_factory=list)

    def make(self, name: str, tensors: dict[str, torch.Tensor], model: PreTrainedModel) -> torch.Tensor:
        """Makes the weight. Takes the sources out of `tensors`, so that they do not stay in memory beside it."""
        if self.converter is None:
            return tensors.pop(self.sources[0][0])
        converter = copy.deepcopy(self.converter)
        for source, pattern in self.sources:
            converter.add_tensor(name, source, pattern, tensors.pop(source))
        made = converter.convert(name, model=model, config=model.config)
        if list(made) != [name]:
            raise ValueError(f"the files' tensors of {name} have other weights in them too")
        return made[name][0] if isinstance(made[name], list) else made[name]


class _Files:
    """`model` has its buffers; its parameters are on the device `meta`."""

    def __init__(
        self, model: PreTrainedModel, stored: dict[str, _Stored], recipes: dict[str, _Recipe], lora: Lora | None
    ) -> None:
        if lora is not None:
            _put_on_cpu(model)
            add_adapter(model, lora)
        self._model, self._stored, self._recipes = model, stored, recipes
        self._weights = dict(model.named_parameters())
        self.dtypes = {name: _dtype_of(model, name, each) for name, each in self._weights.items()}
        self.buffers = {
            name: self._read(name, _dtype_of(model, name, each)) if _name_in_model(name) in recipes else each
            for name, each in model.named_buffers()
        }

    def weight(self, name: str) -> torch.Tensor:
        if any(part in name for part in ADAPTER_PARTS):
            return self._weights[name].detach()
        return self._read(name, self.dtypes[name])

    def _read(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        name = _name_in_model(name)
        recipe = self._recipes[name]
        of_files: dict[Path, list[str]] = defaultdict(list)
        for source, _ in recipe.sources:
            of_files[self._stored[source].file].append(source)
        tensors: dict[str, torch.Tensor] = {}
        for path, sources in of_files.items():
            try:
                with safe_open(path, "pt") as file:
                    tensors |= {source: file.get_tensor(source).to(dtype) for source in sources}
            except (SafetensorError, OSError) as error:
                what = f"{path} cannot be read: {error}"
                raise GpuWorkerError("BadModel", f"{what}; download it again or choose another model") from error
        return recipe.make(name, tensors, self._model)


def _name_in_model(name: str) -> str:
    """Returns the name that a parameter of a model with an adapter has without it."""
    return name.replace(".base_layer.", ".")


def _dtype_of(model: PreTrainedModel, name: str, tensor: torch.Tensor) -> torch.dtype:
    """Returns the dtype that transformers gives a tensor: some stay in float32 in any case."""
    plan = model._get_dtype_plan(model.config.dtype)
    if not plan or any(part in name for part in ADAPTER_PARTS):
        return tensor.dtype
    pattern, dtypes, _ = build_glob_alternation(list(plan))
    found = pattern.search(_name_in_model(name))
    return plan[dtypes[found.lastgroup]] if found else tensor.dtype


def weight_source(folder: Path, text: TextModel, lora: Lora | None) -> WeightSource:
    """Raises `BadModel` when the files cannot be read."""
    config = text.config
    with _weights_on_meta():
        model = AutoModelForCausalLM.from_config(config, dtype=config.dtype, attn_implementation=register())
    try:
        stored = _stored_tensors(folder)
        recipes = _recipes(model, stored, text.key_mapping)
        if all(_can_be_made(model, name, recipes.get(name), stored) for name, _ in model.named_parameters()):
            return _Files(model.eval(), stored, recipes, lora)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError):
        # transformers says what is wrong with the files.
        pass
    _require_room(folder, model)
    return _Loaded(folder, text, lora)


def _require_room(folder: Path, model: PreTrainedModel) -> None:
    """Raises `DoesNotFit` where the whole model is larger than the main memory that is available."""
    size, room = sum(each.numel() * each.dtype.itemsize for each in model.parameters()), main_memory_room()
    if size > room:
        what = f"the first rank must read model {folder} whole: its files are no safetensors, or have other tensors"
        sizes = f"It has {size / 2**30:.1f} GiB, and the main memory has {room / 2**30:.1f} GiB"
        how = "convert it with transformers' `save_pretrained` in its `dtype`, or use a host with more memory"
        raise GpuWorkerError("DoesNotFit", f"{what}. {sizes}; {how}")


def _stored_tensors(folder: Path) -> dict[str, _Stored]:
    """Returns the tensors that transformers would load. Others in the folder are not part of the model."""
    return {name: each for path in tensor_files(folder) for name, each in _tensors_of(path).items()}


def _tensors_of(path: Path) -> dict[str, _Stored]:
    with safe_open(path, "pt") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: _Stored(path, part.get_shape(), part.get_dtype()) for name, part in parts.items()}


def _recipes(
    model: PreTrainedModel, stored: dict[str, _Stored], key_mapping: dict[str, str] | None
) -> dict[str, _Recipe]:
    """Returns how transformers makes each weight and buffer of `model` (`convert_and_load_state_dict_in_model`)."""
    of_model = model.state_dict()
    transforms = get_model_conversion_mapping(model, key_mapping)
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    of_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    recipes: dict[str, _Recipe] = {}
    for source in sorted(stored, key=dot_natural_key):
        prefix = model.base_model_prefix
        name, pattern = rename_source_key(source, renamings, converters, prefix, of_model)
        if name not in of_model and source in of_model:
            name, pattern = source, None
        if name in of_model:
            recipes.setdefault(name, _Recipe(of_pattern.get(pattern))).sources.append((source, pattern))
    return recipes


def _can_be_made(model: PreTrainedModel, name: str, recipe: _Recipe | None, stored: dict[str, _Stored]) -> bool:
    """Returns False where a parameter needs more than to read its sources, to cast them, and to join them."""
    if recipe is None or (recipe.converter is None and len(recipe.sources) > 1):
        return False
    parameter, sources = model.get_parameter(name), {source: stored[source] for source, _ in recipe.sources}
    dtypes = {each.dtype for each in sources.values()}
    # Without a dtype in the configuration that of the files counts.
    if dtypes != {DTYPES[parameter.dtype]} and (model.config.dtype is None or not dtypes <= FLOATS):
        return False
    shapes = {source: torch.empty(each.shape, dtype=parameter.dtype, device="meta") for source, each in sources.items()}
    return recipe.make(name, shapes, model).shape == parameter.shape


def _put_on_cpu(model: nn.Module) -> None:
    """Replaces each parameter by one number that is repeated: peft puts an adapter where the layer's weight is."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, each in module._parameters.items():
            if each is not None:
                repeated = nn.Parameter(torch.zeros((), dtype=each.dtype).expand(each.shape))
                module._parameters[name] = made.setdefault(id(each), repeated)


@contextmanager
def _weights_on_meta() -> Iterator[None]:
    """Makes modules put each parameter on the device `meta` when they get it. Buffers get their values."""
    plain = nn.Module.register_parameter

    def register_parameter(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        # One that is there already is tied to another.
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        plain(module, name, parameter)

    nn.Module.register_parameter = register_parameter
    try:
        yield
    finally:
        nn.Module.register_parameter = plain
