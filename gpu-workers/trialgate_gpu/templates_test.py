import json

import torch
from safetensors.torch import save_file

from shallow_model import cut

from .base import TEMPLATES, link_files
from .checkpoint import copy_side_files


def test_a_models_named_chat_templates_are_in_its_first_version_and_in_each_later_one(tmp_path):
    model, first, later = (tmp_path / name for name in ("model", "first", "later"))
    for folder in (model / TEMPLATES, first, later):
        folder.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"dtype": "float32"}))
    (model / TEMPLATES / "tool_use.jinja").write_text("{{ tools }}")
    assert link_files(model, first) == []
    copy_side_files(first, later)
    for folder in (first, later):
        assert (folder / TEMPLATES / "tool_use.jinja").read_text() == "{{ tools }}"
    # The links are to files that the run does not own; a later version has its own copies.
    assert (first / TEMPLATES).is_symlink()
    assert not (later / TEMPLATES).is_symlink()


def test_a_model_cut_to_its_first_layers_keeps_its_named_chat_templates(tmp_path):
    model, shallow = tmp_path / "model", tmp_path / "shallow"
    (model / TEMPLATES).mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"num_hidden_layers": 2}))
    (model / TEMPLATES / "tool_use.jinja").write_text("{{ tools }}")
    save_file({f"model.layers.{layer}.weight": torch.zeros(1) for layer in range(2)}, model / "model.safetensors")
    cut(model, shallow, 1)
    assert json.loads((shallow / "config.json").read_text()) == {"num_hidden_layers": 1}
    assert (shallow / TEMPLATES / "tool_use.jinja").read_text() == "{{ tools }}"
