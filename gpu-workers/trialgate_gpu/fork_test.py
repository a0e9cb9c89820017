import json
import os
import shutil
from pathlib import Path

import torch

from conftest import two_groups

from .group.saved_state import has_state
from .load_base import load_base
from .manifest import MANIFEST, read_manifest
from .progress import Progress
from .train_step import Trainer


def fresh():
    return Trainer(torch.device("cpu"), 64)


def forked(checkpoint: str, run_id: str) -> Path:
    """Forks a checkpoint as `activities/run/link-checkpoint.ts` does: hard links, and the manifest of a version 0."""
    source = Path(checkpoint)
    target = source.parent / f"fork-{run_id}"
    shutil.copytree(source, target, copy_function=os.link, ignore=shutil.ignore_patterns(MANIFEST))
    manifest = json.loads((source / MANIFEST).read_text()) | {"run_id": run_id, "version": 0}
    if not has_state(source) and manifest["replay"]:
        (target / "replay").mkdir()
        os.link(manifest["replay"]["batch_path"], target / "replay/batch.arrow")
        manifest["replay"]["batch_path"] = "replay/batch.arrow"
    (target / MANIFEST).write_text(json.dumps(manifest))
    return target


def test_a_fork_continues_with_its_parents_optimizer_state_also_after_the_parents_checkpoint_is_removed(
    make_run, trainer
):
    run = make_run()
    one = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    trainer.settle()
    folder = forked(one["checkpoint"], "other")
    base = load_base(fresh(), {"run_id": "other", "model": str(folder), "home": str(run.home)}, Progress())
    assert base["checkpoint"] == str(folder)
    assert base["checkpoint_sha256"] == one["checkpoint_sha256"]
    assert base["canary"] == one["canary"]

    parent = one["checkpoint"]
    for version in (2, 3, 4):
        rows = two_groups()[version - 2 :]
        parent = trainer.train_step(run.request(parent, rows, version), Progress())["checkpoint"]
    assert not Path(one["checkpoint"]).exists()
    gone = trainer.train_step(run.request(str(folder), two_groups()[::2]) | {"run_id": "other"}, Progress())
    manifest = json.loads((Path(gone["checkpoint"]) / MANIFEST).read_text())
    assert manifest["optimizer_steps"] == 2
    assert folder.exists()


def test_the_state_of_a_forks_version_0_is_computed_again_after_the_first_runs_batch_is_removed(make_run, trainer):
    run = make_run()
    request = run.request(run.base(trainer)["checkpoint"], two_groups(), save_optimizer_every=4)
    one = trainer.train_step(request, Progress())
    folder = forked(one["checkpoint"], "other")
    shutil.rmtree(one["checkpoint"])
    Path(request["batch_path"]).unlink()
    made = fresh().train_step(run.request(str(folder), two_groups()[::-1]) | {"run_id": "other"}, Progress())
    assert read_manifest(Path(made["checkpoint"])).optimizer_steps == 2
    assert not (Path(made["checkpoint"]) / "replay").exists()


def test_a_run_whose_base_model_is_another_runs_checkpoint_gets_its_own_version_0_of_it(make_run, trainer):
    run = make_run()
    one = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    base = load_base(fresh(), {"run_id": "other", "model": one["checkpoint"], "home": str(run.home)}, Progress())
    assert base["checkpoint"] != one["checkpoint"]
