import os
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from conftest import two_groups

from ..errors import GpuWorkerError
from ..progress import Progress
from ..train_step import Trainer
from .saved_state import StateWriter
from .world import World
from .world_test import in_two_ranks

FULL = OSError(28, "No space left on device")


def step(run, trainer):
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    trainer.settle()
    return Path(made["checkpoint"])


@pytest.mark.parametrize("text", ["", "{}", '{"checkpoint_sha256": '])
def test_a_state_whose_list_of_files_is_cut_off_is_refused_for_good_and_the_error_says_what_to_delete(
    make_run, trainer, text
):
    run = make_run()
    folder = step(run, trainer)
    (folder / "trainer/state.json").write_text(text)
    with pytest.raises(GpuWorkerError, match=r"state\.json cannot be read.*; delete .*trainer: the state is") as caught:
        Trainer(torch.device("cpu"), 64).train_step(run.request(str(folder), two_groups(), 2), Progress())
    assert (caught.value.kind, caught.value.retryable) == ("CorruptCheckpoint", False)


def test_a_state_is_on_the_disk_before_it_appears_in_its_checkpoint(make_run, trainer, monkeypatch):
    synced, before_rename = [], []
    fsync, rename = os.fsync, Path.rename

    def recorded_fsync(descriptor):
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def recorded_rename(self, target):
        if target.name == "trainer":
            before_rename.extend(path.name for path in synced if path == self or self in path.parents)
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)
    folder = step(make_run(), trainer)
    written = {path.name for path in (folder / "trainer").iterdir()}
    assert {"state.json", ".metadata", "__0_0.distcp"} == written <= set(before_rename)
    assert synced[-1] == folder


def finish(world: World, folder: Path, error: Exception | None) -> None:
    """Ends the writing of a state, which went wrong with `error`."""
    saving: Future[None] = Future()
    saving.set_exception(error) if error else saving.set_result(None)
    StateWriter(world)._finish(saving, folder, folder / "draft", {})


def draft_in(folder: Path) -> Path:
    (folder / "draft").mkdir()
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp"):
        (folder / "draft" / name).write_text("part")
    return folder


def test_a_rank_that_cannot_write_its_part_of_a_state_does_not_stop_the_others_and_nothing_of_it_stays(tmp_path):
    folder = draft_in(tmp_path)

    def work(world: World) -> None:
        finish(world, folder, FULL if world.rank == 1 else None)
        world.wait()

    in_two_ranks(tmp_path, work)
    assert not (folder / "trainer").exists()
    assert not (folder / "draft").exists()


def test_the_line_that_says_that_a_state_was_not_written_says_why(tmp_path, caplog):
    finish(World(), draft_in(tmp_path), FULL)
    assert "was not written (OSError: [Errno 28] No space left on device)" in caplog.messages[0]
    assert not (tmp_path / "draft").exists()
