"""Tests which files of a folder have the model's tensors."""

import json

import pytest
import torch
from safetensors.torch import save_file

from .errors import GpuWorkerError
from .tensor_file import INDEX, stored_bytes, stored_tensors, tensor_files


def make(folder, *files, index=None):
    for number, name in enumerate(files):
        save_file({f"of {name}": torch.zeros(2, 3 + number)}, folder / name)
    if index is not None:
        weight_map = {f"of {name}": name for name in index}
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return folder


@pytest.mark.parametrize(
    ("files", "index", "read"),
    [
        (["consolidated.safetensors", "model.safetensors"], None, ["model.safetensors"]),
        (["consolidated.safetensors", "model.safetensors"], ["model.safetensors"], ["model.safetensors"]),
        (
            ["a.safetensors", "b.safetensors", "consolidated.safetensors"],
            ["a.safetensors", "b.safetensors"],
            ["a", "b"],
        ),
        (["b.safetensors", "a.safetensors"], None, ["a", "b"]),
    ],
)
def test_only_the_files_that_transformers_loads_are_read(tmp_path, files, index, read):
    folder = make(tmp_path, *files, index=index)
    expected = [folder / f"{name.removesuffix('.safetensors')}.safetensors" for name in read]
    assert tensor_files(folder) == expected
    assert stored_tensors(folder) == {f"of {path.name}": path for path in expected}
    assert stored_bytes(folder) == {f"of {path.name}": 4 * 2 * (3 + files.index(path.name)) for path in expected}


@pytest.mark.parametrize(
    ("files", "index", "why"),
    [
        (
            ["model.safetensors", "a.safetensors"],
            ["a.safetensors"],
            "that names a.safetensors: engines would read other",
        ),
        (["a.safetensors"], ["a.safetensors", "b.safetensors"], "lacks b.safetensors, which model.safetensors.index"),
    ],
)
def test_a_folder_whose_index_does_not_fit_its_files_is_refused_with_the_file(tmp_path, files, index, why):
    with pytest.raises(GpuWorkerError, match=why) as caught:
        tensor_files(make(tmp_path, *files, index=index))
    assert caught.value.kind == "BadModel"
