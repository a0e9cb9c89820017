import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from conftest import row, settings_with, two_groups

from . import checkpoint
from .checkpoint import TEMPORARY, remove_leftovers
from .errors import Cancelled, GpuWorkerError
from .manifest import read_manifest
from .progress import Progress
from .train_step import Trainer, step_key


def fresh():
    return Trainer(torch.device("cpu"), 64)


def two_steps(run, first, second):
    base = run.base(first)
    one = first.train_step(run.request(base["checkpoint"], two_groups()), Progress())
    return second.train_step(run.request(one["checkpoint"], two_groups(), 2), Progress())


def test_a_train_step_gives_the_same_weights_whether_its_parent_checkpoint_is_in_memory_or_read_from_disk(make_run):
    kept, other = fresh(), fresh()
    in_memory = two_steps(make_run("a"), kept, kept)
    from_disk = two_steps(make_run("b"), other, fresh())
    assert in_memory["checkpoint_sha256"] == from_disk["checkpoint_sha256"]
    assert in_memory["canary"] == from_disk["canary"]


def test_a_train_step_gives_the_same_weights_in_another_process(make_run, trainer):
    here, there = make_run("a"), make_run("b")
    one = trainer.train_step(here.request(here.base(trainer)["checkpoint"], two_groups()), Progress())
    request = there.request(there.base(trainer)["checkpoint"], two_groups())
    code = (
        "import json, sys, torch; from trialgate_gpu.train_step import Trainer; "
        "from trialgate_gpu.progress import Progress; torch.set_num_threads(int(sys.argv[2])); "
        "r = Trainer(torch.device('cpu'), 64).train_step(json.loads(sys.argv[1]), Progress()); "
        "print(r['checkpoint_sha256'])"
    )
    arguments = [sys.executable, "-c", code, json.dumps(request), str(torch.get_num_threads())]
    root = Path(__file__).parent.parent
    found = subprocess.run(arguments, cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout.strip().splitlines()[-1] == one["checkpoint_sha256"]


def test_a_train_step_that_is_asked_for_again_returns_the_finished_checkpoint(make_run, trainer):
    run = make_run()
    request = run.request(run.base(trainer)["checkpoint"], two_groups())
    one = trainer.train_step(request, Progress())
    again = fresh().train_step(request | {"batch_path": "/gone"}, Progress())
    assert again == one | {"reused": True}


def test_a_train_step_raises_the_probability_of_the_better_reply_and_lowers_that_of_the_worse(make_run, trainer):
    run = make_run()
    prompt, good, bad = [5, 6, 7], [11, 12, 13], [21, 22, 23]
    rows = [row(prompt, good, 1.0, "g", "a"), row(prompt, bad, 0.0, "g", "b")]
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], rows), Progress())

    def chance(folder, reply):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        logits = model(torch.tensor([prompt + reply])).logits[0].log_softmax(-1)
        return logits[torch.arange(2, 5), reply].sum().item()

    base = run.base(trainer)["checkpoint"]
    assert chance(made["checkpoint"], good) > chance(base, good)
    assert chance(made["checkpoint"], bad) < chance(base, bad)
    assert made["metrics"]["actor/grad_norm"] > 0


def test_a_train_step_on_a_batch_without_advantages_makes_a_version_equal_to_its_parent(make_run, trainer):
    run = make_run()
    base = run.base(trainer)
    made = trainer.train_step(run.request(base["checkpoint"], two_groups(spread=False)), Progress())
    assert made["metrics"]["actor/updates"] == 0
    assert made["metrics"]["train/samples_without_advantage"] == 8
    assert made["canary"] == base["canary"]


def test_a_sample_with_advantage_0_counts_in_the_number_that_the_loss_is_divided_by(make_run):
    rows = [row([5, 6], [9, 10], 1.0, "g", "a"), row([5, 6], [11, 12], 0.0, "g", "b")]
    flat = [row([7, 8], [9, 10], 0.5, "h", "c"), row([7, 8], [11, 12], 0.5, "h", "d")]
    norms = []
    for name, batch in (("a", rows), ("b", rows + flat)):
        run, trainer = make_run(name), fresh()
        made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], batch), Progress())
        norms.append(made["metrics"]["actor/grad_norm"])
    assert norms[1] == pytest.approx(norms[0] / 2, rel=1e-3)


@pytest.mark.parametrize("settings", [{"ppo_epochs": 2}, {"ppo_mini_batch_size": 4}])
def test_a_train_step_makes_one_optimizer_step_for_each_mini_batch_of_each_epoch(make_run, trainer, settings):
    run = make_run()
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups(), **settings), Progress())
    assert made["metrics"]["actor/updates"] == 2


def test_keep_checkpoints_keeps_the_newest_checkpoints_the_parent_of_the_newest_and_the_best(make_run, trainer):
    run = make_run()
    made = [run.base(trainer)["checkpoint"]]
    # Version 5 is made from version 3 again, as after a redo.
    for version, parent in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 3)]:
        request = run.request(made[parent], two_groups(), version, keep_checkpoints=2, seed=version)
        made.append(
            trainer.train_step(request | {"best_checkpoint": made[min(version - 1, 1)]}, Progress())["checkpoint"]
        )
    assert [Path(folder).exists() for folder in made[1:]] == [True, False, True, True, True]


def test_keep_interval_keeps_every_nth_checkpoint_beside_the_newest_and_changes_no_weight(make_run, trainer):
    run = make_run()
    made = [run.base(trainer)["checkpoint"]]
    for version in range(1, 8):
        rows = two_groups()[version % 2 :]
        request = run.request(made[-1], rows, version, keep_checkpoints=2, keep_interval=3)
        made.append(trainer.train_step(request, Progress())["checkpoint"])
    assert [version for version, folder in enumerate(made) if Path(folder).exists()] == [0, 3, 6, 7]
    every, none = settings_with(keep_interval=3), settings_with()
    assert step_key("parent", "batch", every) == step_key("parent", "batch", none)


def test_a_cancelled_train_step_leaves_no_files_and_can_be_repeated(make_run, trainer):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    request = run.request(base, two_groups())

    class CancelledInOptimizer(Progress):
        def show(self, phase, **numbers):
            if phase == "canary":
                self.cancel()
            super().show(phase, **numbers)

    with pytest.raises(Cancelled):
        trainer.train_step(request, CancelledInOptimizer())
    assert [p.name for p in (run.home / "checkpoints").iterdir()] == [Path(base).name]
    again = trainer.train_step(request, Progress())
    other = make_run("other")
    first = trainer.train_step(other.request(other.base(trainer)["checkpoint"], two_groups()), Progress())
    assert again["checkpoint_sha256"] == first["checkpoint_sha256"]


def test_a_train_step_on_a_full_disk_fails_with_the_path_and_keeps_earlier_checkpoints(make_run, trainer, monkeypatch):
    run = make_run()
    base = run.base(trainer)["checkpoint"]

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    with pytest.raises(GpuWorkerError, match=r"disk full: .*checkpoints has .* needs .* MiB") as caught:
        trainer.train_step(run.request(base, two_groups()), Progress())
    assert caught.value.kind == "DiskFull"
    assert [p.name for p in (run.home / "checkpoints").iterdir()] == [Path(base).name]


def test_a_damaged_parent_checkpoint_is_refused(make_run, trainer):
    run = make_run()
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups()), Progress())
    trainer.settle()
    file = Path(made["checkpoint"]) / "trainer" / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(GpuWorkerError, match=r"__0_0\.distcp does not have the sha256"):
        fresh().train_step(run.request(made["checkpoint"], two_groups(), 2), Progress())


def test_a_missing_parent_checkpoint_is_named_in_the_error(make_run, trainer, tmp_path):
    run = make_run()
    with pytest.raises(GpuWorkerError, match="is not there") as caught:
        trainer.train_step(run.request(str(tmp_path / "nothing"), two_groups()), Progress())
    assert caught.value.kind == "MissingCheckpoint"


def test_a_train_step_with_an_unknown_setting_is_refused_and_the_error_names_the_setting(make_run, trainer):
    run = make_run()
    with pytest.raises(GpuWorkerError, match="'cliprange' was unexpected"):
        trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups(), cliprange=1), Progress())


def test_temporary_folders_of_killed_train_steps_are_removed_and_those_of_running_ones_stay(tmp_path):
    import os
    import socket

    dead = tmp_path / f"{TEMPORARY}{'a' * 32}-{socket.gethostname()}-4194999-ab"
    alive = tmp_path / f"{TEMPORARY}{'a' * 32}-{socket.gethostname()}-{os.getpid()}-ab"
    dead.mkdir(), alive.mkdir()
    remove_leftovers(tmp_path)
    assert [p for p in (dead, alive) if p.exists()] == [alive]


def test_a_base_model_that_cannot_be_downloaded_is_refused_with_the_reason(make_run, trainer, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run = make_run()
    run.model = "nobody/nothing-here"
    with pytest.raises(GpuWorkerError, match=r"could not be downloaded|Hugging Face has no model"):
        run.base(trainer)


@pytest.mark.parametrize("objective", ["grpo", "cispo", "rloo", "gspo"])
def test_a_reward_for_a_trials_only_turn_trains_to_the_same_bits_as_a_reward_for_the_trial(
    make_run, trainer, objective
):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    rows = two_groups()
    in_turns = [
        r | {"turns": [0 if m else None for m in r["loss_mask"]], "turn_rewards": [("reward", [r["rewards"][0][1]])]}
        for r in rows
    ]
    made = [trainer.train_step(run.request(base, each, objective=objective), Progress()) for each in (rows, in_turns)]
    manifests = [read_manifest(Path(each["checkpoint"])) for each in made]
    assert manifests[0].weights_sha256 == manifests[1].weights_sha256
    assert made[0]["metrics"]["actor/grad_norm"] == made[1]["metrics"]["actor/grad_norm"] > 0


def test_a_train_step_trains_each_turn_of_a_conversation_by_the_turns_own_advantage(make_run, trainer):
    run = make_run()
    prompt, first, again, second = [5, 6, 7], [11, 12], [8, 9], [21, 22]
    other, better = [31, 32], [41, 42]

    def conversation(replies, earned, trial):
        made = row(prompt, [*replies[0], *again, *replies[1]], sum(earned), "g", trial)
        mask, turns = [0, 0, 0, 1, 1, 0, 0, 1, 1], [None] * 3 + [0, 0, None, None, 1, 1]
        versions = [0 if m else None for m in mask]
        named = {"turn_rewards": [("reward", earned)], "turns": turns}
        return made | {"loss_mask": mask, "policy_versions": versions, "companion_turn_rewards": []} | named

    rows = [conversation((first, second), [1.0, 0.0], "a"), conversation((other, better), [0.0, 0.5], "b")]
    base = run.base(trainer)["checkpoint"]
    made = trainer.train_step(run.request(base, rows), Progress())

    def chance(folder, before, reply):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        logits = model(torch.tensor([before + reply])).logits[0].log_softmax(-1)
        return logits[torch.arange(len(before) - 1, len(before) + len(reply) - 1), reply].sum().item()

    def gain(before, reply):
        return chance(made["checkpoint"], before, reply) - chance(base, before, reply)

    # Trial a earned more in all, but all of it in its first turn.
    assert gain(prompt, first) > 0 > gain(prompt, other)
    assert gain(prompt + first + again, second) < 0 < gain(prompt + other + again, better)
