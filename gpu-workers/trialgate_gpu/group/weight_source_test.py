"""Tests that weights that are read one at a time are those that transformers loads."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from conftest import make_tiny_model

from ..errors import GpuWorkerError
from ..families_test import TRAINED, make
from ..lora import Lora
from . import weight_source as module
from .weight_source import weight_source

ADAPTER = Lora(rank=4, alpha=8.0, target_modules="all-linear", seed=3)


def both(folder, lora=None):
    read = weight_source(folder, AutoConfig.from_pretrained(folder), lora)
    return read, module._Loaded(folder, lora)


def assert_equal(read, loaded):
    assert read.buffers.keys() == loaded.buffers.keys()
    for name, buffer in loaded.buffers.items():
        assert read.buffers[name].dtype == buffer.dtype and torch.equal(read.buffers[name], buffer)
    for name in loaded._weights:
        one, other = read.weight(name), loaded.weight(name)
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("lora", [None, ADAPTER], ids=["all weights", "LoRA"])
@pytest.mark.parametrize("tied", [True, False])
def test_each_weight_is_read_alone_and_none_stays_in_memory(tmp_path, tied, lora):
    read, loaded = both(make_tiny_model(tmp_path / "model", tied=tied), lora)
    assert_equal(read, loaded)
    held = sum(each.untyped_storage().nbytes() for name, each in read._weights.items() if not each.is_meta)
    of_adapter = sum(each.nbytes for name, each in loaded._weights.items() if "lora_" in name)
    assert of_adapter <= held < of_adapter + 200


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", TRAINED)
def test_every_family_gets_the_weights_and_buffers_that_transformers_loads(tmp_path, name, dtype):
    assert_equal(*both(make(tmp_path / "model", name, TRAINED[name], dtype)))


def test_a_file_that_is_not_part_of_the_model_gives_no_weights(tmp_path):
    folder = make_tiny_model(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({name: each + 1 for name, each in weights.items()}, folder / "model_ema.safetensors")
    assert_equal(*both(folder))
    # The same with shards: an earlier save may have left one that the index does not name.
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    for number, part in enumerate((names[::2], names[1::2]), 1):
        save_file({name: weights[name] for name in part}, folder / f"model-{number:05}-of-00002.safetensors")
    shards = {name: f"model-{1 + names.index(name) % 2:05}-of-00002.safetensors" for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    save_file({name: each + 1 for name, each in weights.items()}, folder / "model-00003-of-00003.safetensors")
    read, loaded = both(folder)
    assert not isinstance(read, module._Loaded)
    assert_equal(read, loaded)


def test_buffers_have_the_values_of_the_files(tmp_path):
    folder = make(tmp_path / "model", "apertus", {})
    weights = load_file(folder / "model.safetensors")
    changed = {name: each + 1 if name.endswith((".beta", ".eps")) else each for name, each in weights.items()}
    assert any(not torch.equal(each, weights[name]) for name, each in changed.items())
    save_file(changed, folder / "model.safetensors", {"format": "pt"})
    read, loaded = both(folder)
    assert not isinstance(read, module._Loaded)
    assert_equal(read, loaded)


def test_a_file_that_cannot_be_read_any_more_is_a_bad_model(tmp_path):
    folder = make_tiny_model(tmp_path / "model")
    read, loaded = both(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(GpuWorkerError, match=r"model.safetensors cannot be read: .*; download it again") as caught:
        read.weight(next(iter(loaded._weights)))
    assert (caught.value.kind, caught.value.retryable) == ("BadModel", False)


def test_files_of_another_dtype_than_the_configuration_says_are_loaded_by_transformers(tmp_path):
    folder = make_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    read, loaded = both(folder)
    assert isinstance(read, module._Loaded)
    assert_equal(read, loaded)
