import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from conftest import settings_with, two_groups

from . import prune as pruning
from .errors import GpuWorkerError
from .group.saved_state import has_state, is_state_pruned, prune_state
from .manifest import Manifest, read_manifest
from .progress import Progress
from .prune import prune, prune_states
from .replay import steps_since_state
from .train_step import Trainer, step_key


def fresh():
    return Trainer(torch.device("cpu"), 64)


def steps(run, trainer, last, made=(), **settings):
    """Makes the run's versions up to `last`, each from the one before. Returns their folders and that of version 0."""
    made = list(made) or [Path(run.base(trainer)["checkpoint"])]
    for version in range(len(made), last + 1):
        request = run.request(str(made[-1]), two_groups()[version % 3 :], version, keep_checkpoints=99, **settings)
        made.append(Path(trainer.train_step(request, Progress())["checkpoint"]))
        trainer.settle()
    return made


def numbers(folders, of):
    return [version for version, folder in enumerate(folders) if of(folder)]


def test_the_newest_version_and_its_parent_keep_their_trainer_state_and_older_ones_only_what_an_engine_loads(
    make_run, trainer
):
    made = steps(make_run(), trainer, 5)
    assert numbers(made, has_state) == [4, 5]
    assert numbers(made, is_state_pruned) == [1, 2, 3]
    assert [path.name for path in (made[3] / "trainer").iterdir()] == ["pruned"]
    assert {path.name for path in made[3].iterdir()} == {path.name for path in made[5].iterdir()}


def test_with_keep_trainer_state_all_every_checkpoint_keeps_it_and_the_setting_may_change_between_steps(
    make_run, trainer
):
    run = make_run()
    made = steps(run, trainer, 3, keep_trainer_state="all")
    assert numbers(made, has_state) == [1, 2, 3]
    made = steps(run, trainer, 4, made)
    assert numbers(made, has_state) == [3, 4]
    one, other = settings_with(keep_trainer_state="all"), settings_with()
    assert step_key("parent", "batch", one) == step_key("parent", "batch", other)


def test_a_step_of_an_earlier_release_whose_settings_lack_those_that_are_new_is_computed_again(make_run, trainer):
    run = make_run()
    made = steps(run, trainer, 1, save_optimizer_every=2)
    path = made[1] / "manifest.json"
    manifest = json.loads(path.read_text())
    for new in ("keep_trainer_state", "enable_router_replay"):
        del manifest["replay"]["trainer"][new]
    path.write_text(json.dumps(manifest))
    assert numbers(made, has_state) == []
    made += steps(run, fresh(), 2, made)[2:]
    assert numbers(made, has_state) == [2]


def test_a_step_from_the_parent_of_the_newest_version_as_after_a_redo_finds_its_state_and_an_older_one_is_refused(
    make_run, trainer
):
    run = make_run()
    made = steps(run, trainer, 3)
    request = run.request(str(made[2]), two_groups()[::-1], 4, keep_checkpoints=99)
    again = fresh().train_step(request, Progress())
    assert read_manifest(Path(again["checkpoint"])).optimizer_steps == 3
    with pytest.raises(GpuWorkerError) as caught:
        fresh().train_step(run.request(str(made[1]), two_groups()[::-1], 5), Progress())
    assert (caught.value.kind, caught.value.retryable) == ("MissingTrainerState", False)
    assert "`npx trialgate export run@1 FOLDER`" in str(caught.value)
    assert "`keep_trainer_state: newest`" in str(caught.value)


def test_a_state_from_which_that_of_the_parent_is_computed_stays_and_a_pruned_version_keeps_no_others(
    make_run, trainer
):
    run = make_run()
    made = steps(run, trainer, 4, save_optimizer_every=2)
    assert (numbers(made, has_state), numbers(made, is_state_pruned)) == ([2, 4], [1])
    made = steps(run, trainer, 5, made, save_optimizer_every=2)
    assert (numbers(made, has_state), numbers(made, is_state_pruned)) == ([4], [1, 2, 3])
    request = run.request(str(made[5]), two_groups()[1:], 6, save_optimizer_every=2, keep_checkpoints=2)
    made.append(Path(fresh().train_step(request | {"best_checkpoint": str(made[3])}, Progress())["checkpoint"]))
    assert numbers(made, is_state_pruned) == [3]
    # Version 4 stays for the state of version 5, and version 2 not for that of version 3.
    assert numbers(made, Path.exists) == [0, 3, 4, 5, 6]


def test_a_run_that_is_killed_before_the_state_of_its_newest_version_is_written_goes_on_from_the_state_before(
    make_run, trainer
):
    run, undisturbed = make_run(), make_run("undisturbed")
    made = steps(run, trainer, 3)
    shutil.rmtree(made[3] / "trainer")
    made = steps(run, fresh(), 5, made)
    assert numbers(made, has_state) == [4, 5]
    expected = steps(undisturbed, fresh(), 5)
    assert read_manifest(made[5]).weights_sha256 == read_manifest(expected[5]).weights_sha256


def killed_at(count: int, home: Path, parent: Path) -> bool:
    """Prunes the states in another process, which is killed before its change number `count` of the disk.

    Returns false when it made all changes before.
    """
    pid = os.fork()
    if pid == 0:
        left = count

        def counted(change):
            def changed(*arguments, **options):
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return change(*arguments, **options)

            return changed

        for name in ("mkdir", "touch", "unlink"):
            setattr(Path, name, counted(getattr(Path, name)))
        try:
            prune_states(home, "run", parent)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_whenever_a_worker_is_killed_while_it_prunes_states_each_version_has_a_whole_state_or_is_marked(
    make_run, trainer
):
    run = make_run()
    made = steps(run, trainer, 5, save_optimizer_every=2, keep_trainer_state="all")
    made = steps(run, trainer, 6, made, keep_trainer_state="all")
    whole = {path.relative_to(run.home) for folder in made for path in folder.glob("trainer/*")}
    copy, kills = run.home.with_name("copy"), 0
    while True:
        shutil.copytree(run.home, copy, symlinks=True)
        folders = [copy / folder.relative_to(run.home) for folder in made]
        if not killed_at(kills, copy, folders[6]):
            break
        assert has_state(folders[6])
        for folder in folders[1:]:
            if not is_state_pruned(folder):
                # Its state, or the one that it is computed from, is whole.
                first, _ = steps_since_state(folder, read_manifest(folder))[0]
                of_first = {each for each in whole if (copy / each).parent.parent == first}
                assert of_first or first == folders[0]
                assert all((copy / each).exists() for each in of_first)
        shutil.rmtree(copy)
        kills += 1
    assert kills > 10
    assert numbers(folders, is_state_pruned) == [1, 2, 3, 4, 5]
    assert all(os.listdir(folder / "trainer") == ["pruned"] for folder in folders[1:6])
    # A step prunes the rest of what a kill left.
    killed_at(kills - 1, run.home, made[6])
    steps(run, fresh(), 7, made)
    assert all(os.listdir(folder / "trainer") == ["pruned"] for folder in made[1:6])


def checkpoint(home: Path, name: str, version: int, before: str | None, state: bool, run_id: str = "fork") -> Path:
    folder = home / "checkpoints" / name
    folder.mkdir(parents=True)
    replay = before and {"parent": before, "batch_path": "replay/batch.arrow"}
    sha = f"sha of {name}"
    Manifest(run_id, version, name, None, None, {}, sha, sha, 0, {}, {}, replay=replay).write(folder)
    if state:
        (folder / "trainer").mkdir()
        (folder / "trainer/state.json").write_text("{}")
    return folder


def linked_fork(home: Path) -> list[Path]:
    """Makes version 0 of a fork, which was version 10 of the first run, and what its state is computed from."""
    made = [("l0", 0, "l9", False), ("l9", 9, "l8", False), ("l8", 8, "7", True)]
    return [checkpoint(home, *each) for each in made]


def test_the_checkpoints_from_which_a_forks_version_0_is_computed_take_no_place_of_keep_checkpoints(tmp_path):
    linked = linked_fork(tmp_path)
    own = [checkpoint(tmp_path, f"own{version}", version, "l0", True) for version in (1, 2, 3, 4)]
    assert set(prune(tmp_path, "fork", 3, None, {own[-1]})) == {own[0]}
    assert all(folder.exists() for folder in [*linked, *own[1:]])


def test_a_fork_keeps_what_the_state_of_its_version_0_is_computed_from_until_a_later_version_has_its_own(tmp_path):
    first = [checkpoint(tmp_path, name, int(name), "6", True, "first") for name in ("7", "8", "9")]
    zero, *linked = linked_fork(tmp_path)
    one = checkpoint(tmp_path, "one", 1, "l0", False)
    prune_states(tmp_path, "fork", one)
    assert not any(map(is_state_pruned, [zero, *linked, one]))
    two = checkpoint(tmp_path, "two", 2, "one", True)
    prune_states(tmp_path, "fork", two)
    assert (is_state_pruned(zero), is_state_pruned(one), has_state(two)) == (True, True, True)
    assert set(prune(tmp_path, "fork", 2, None, [two])) == set(linked)
    assert zero.exists()
    assert all(map(has_state, first))


def test_a_state_that_cannot_be_removed_does_not_stop_the_step(make_run, trainer, monkeypatch, caplog):
    run = make_run()
    made = steps(run, trainer, 2)

    def refused(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pruning, "prune_state", refused)
    made = steps(run, trainer, 3, made)
    assert f"the trainer's state of {made[1]} cannot be removed: [Errno 13] Permission denied" in caplog.messages
    monkeypatch.setattr(pruning, "prune_state", prune_state)
    assert numbers(steps(run, trainer, 4, made), has_state) == [3, 4]
