"""Tests that weights that are read one at a time are those that transformers loads."""

import json
from functools import cache
from weakref import ref

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from conftest import make_tiny_model

from ..errors import GpuWorkerError
from ..families_test import MIXTURES, TRAINED, make
from ..lora import Lora
from ..multimodal import read_text_model
from . import weight_source as module
from .weight_source import weight_source

ADAPTER = Lora(rank=4, alpha=8.0, target_modules="all-linear", seed=3)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns the folder of a model, which tests only read."""
    return cache(lambda name, dtype: make(tmp_path_factory.mktemp("made"), name, TRAINED[name], dtype))


def both(folder, lora=None):
    read = weight_source(folder, read_text_model(folder), lora)
    return read, module._Loaded(folder, read_text_model(folder), lora)


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


@pytest.mark.parametrize("lora", [None, ADAPTER], ids=["all weights", "LoRA"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", TRAINED)
def test_every_family_gets_the_weights_and_buffers_that_transformers_loads(made, name, dtype, lora):
    read, loaded = both(made(name, dtype), lora)
    assert not isinstance(read, module._Loaded)
    assert_equal(read, loaded)


class Watched:
    """Notes each tensor that is read of a file, and which of them are in memory."""

    def __init__(self):
        self.names, self._tensors = [], []

    def alive(self):
        return sum(tensor() is not None for tensor in self._tensors)

    def open(self, *given):
        watched = self

        class File:
            def __enter__(self):
                self.file = safe_open(*given)
                return self

            def __exit__(self, *_):
                del self.file

            def get_tensor(self, name):
                tensor = self.file.get_tensor(name)
                watched.names.append(name)
                watched._tensors.append(ref(tensor))
                return tensor

        return File()


@pytest.mark.parametrize("name", MIXTURES)
def test_of_a_mixture_the_tensors_of_one_weight_are_in_memory_at_a_time_and_each_is_read_once(
    tmp_path, monkeypatch, name
):
    folder = make(tmp_path / "model", name, TRAINED[name], torch.bfloat16)
    read = weight_source(folder, read_text_model(folder), None)
    watched = Watched()
    monkeypatch.setattr(module, "safe_open", watched.open)
    most = 0
    for weight, each in read._weights.items():
        assert each.is_meta and watched.alive() == 0
        before = len(watched.names)
        made = read.weight(weight)
        # What has been joined does not stay beside the result.
        assert watched.alive() <= 1 and made.shape == each.shape
        most = max(most, len(watched.names) - before)
        del made
    experts = 1 if name == "gpt_oss" else 2 * TRAINED[name]["num_experts"]
    assert most == experts
    assert len(set(watched.names)) == len(watched.names)
    in_files = load_file(folder / "model.safetensors")
    assert in_files.keys() - set(watched.names) <= {each for each in in_files if each.endswith("_bias")}


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


def with_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize("name", ["llama", "llama with a tied head", *MIXTURES])
@pytest.mark.parametrize(("stored", "said"), [(torch.bfloat16, "float32"), (torch.float32, "bfloat16")], ids=str)
def test_files_of_another_dtype_than_the_configuration_says_are_read_and_cast_a_weight_at_a_time(
    tmp_path, name, stored, said
):
    read, loaded = both(with_config(make(tmp_path / "model", name, TRAINED[name], stored), dtype=said))
    assert not isinstance(read, module._Loaded)
    assert_equal(read, loaded)


def test_files_without_a_dtype_in_the_configuration_are_loaded_by_transformers_unless_theirs_is_the_default(tmp_path):
    for dtype, is_whole in ((torch.bfloat16, True), (torch.float32, False)):
        read, loaded = both(with_config(make(tmp_path / str(dtype), "llama", {}, dtype), dtype=None))
        assert isinstance(read, module._Loaded) == is_whole
        assert_equal(read, loaded)


def test_a_model_that_must_be_read_whole_and_is_larger_than_the_main_memory_is_refused_with_both_sizes(
    tmp_path, monkeypatch
):
    folder = with_config(make(tmp_path / "model", "llama", {}, torch.bfloat16), dtype=None)
    size = 4 * sum(each.numel() for each in load_file(folder / "model.safetensors").values())
    monkeypatch.setattr(module, "main_memory_room", lambda: size - 1)
    with pytest.raises(GpuWorkerError, match=f"It has {size / 2**30:.1f} GiB, and the main memory has") as refused:
        weight_source(folder, read_text_model(folder), None)
    assert refused.value.kind == "DoesNotFit"
    monkeypatch.setattr(module, "main_memory_room", lambda: size)
    assert isinstance(weight_source(folder, read_text_model(folder), None), module._Loaded)


def test_weights_that_transformers_keeps_in_float32_stay_in_it(tmp_path):
    # Of gpt_oss these are the norms, where the model is in float16.
    folder = make(tmp_path / "model", "gpt_oss", TRAINED["gpt_oss"])
    read, loaded = both(with_config(folder, dtype="float16"))
    assert not isinstance(read, module._Loaded)
    assert read.dtypes["model.norm.weight"] == torch.float32
    assert_equal(read, loaded)


def test_a_mixture_whose_files_lack_an_expert_is_refused_with_its_weights(tmp_path):
    folder = make(tmp_path / "model", "qwen3_moe", TRAINED["qwen3_moe"], torch.bfloat16)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.experts.2.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(GpuWorkerError, match=r"cannot be loaded .*cut short") as caught:
        weight_source(folder, read_text_model(folder), None)
    assert caught.value.kind == "BadModel"
