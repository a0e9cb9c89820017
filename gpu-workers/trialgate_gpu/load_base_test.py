import json
import shutil

import pytest

from conftest import LORA

from .load_base import load_base
from .progress import Progress


class Phases(Progress):
    def __init__(self):
        super().__init__()
        self.seen = []

    def show(self, phase, **numbers):
        self.seen.append(phase)
        super().show(phase, **numbers)


@pytest.mark.parametrize("settings", [{}, LORA], ids=["full", "lora"])
def test_a_model_is_checked_once_for_all_runs_and_again_after_its_config_changed(make_run, trainer, tmp_path, settings):
    run = make_run()
    changed = tmp_path / "changed"
    shutil.copytree(run.model, changed)
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))

    def begin(run_id, model):
        progress = Phases()
        request = {"run_id": run_id, "model": str(model), "home": str(run.home)} | settings
        return load_base(trainer, request, progress), "self-check" in progress.seen

    (first, is_checked), (second, is_checked_again) = begin("one", run.model), begin("two", run.model)
    assert (is_checked, is_checked_again) == (True, False)
    assert second["checkpoint"] != first["checkpoint"]
    assert (second["canary"], second["metrics"]) == (first["canary"], first["metrics"])
    other, is_checked = begin("three", changed)
    assert is_checked
    assert other["canary"] != first["canary"]
