import json

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
