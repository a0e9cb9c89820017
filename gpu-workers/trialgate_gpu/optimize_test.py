import numpy as np
import pytest

from conftest import row, settings_with, two_groups, write_batch

from .batch import read_batch
from .optimize import mini_batches
from .prepare import prepare
from .progress import Progress


def branched_rows(branches):
    """Returns two groups of four trials. The second trial of each group is branched into this number of samples."""
    rows = []
    for number, whole in enumerate(two_groups()):
        rows += [whole] * (branches if number % 4 == 1 else 1)
    return rows


def batches_of(tmp_path, rows, size, seed=(0, 0, 0)):
    settings = settings_with(ppo_mini_batch_size=size)
    samples = read_batch(*write_batch(tmp_path, rows), 0)
    made = mini_batches(prepare(samples, settings, 0), settings, list(seed))
    assert sorted(np.concatenate(made)) == list(range(len(rows)))
    return [[samples[i].trial_id for i in indices] for indices in made]


@pytest.mark.parametrize("branches", [1, 5, 50])
@pytest.mark.parametrize(("size", "updates"), [(None, 1), (8, 1), (4, 2), (3, 3), (1, 8)])
def test_a_mini_batch_counts_trials_and_has_all_samples_of_each(tmp_path, branches, size, updates):
    made = batches_of(tmp_path, branched_rows(branches), size)
    assert len(made) == updates
    trials = [set(trial_ids) for trial_ids in made]
    assert sum(map(len, trials)) == 8 and len(set.union(*trials)) == 8
    assert all(len(t) <= (size or 8) for t in trials)


def test_the_order_in_which_groups_are_trained_depends_on_step_and_epoch_and_is_repeatable(tmp_path):
    rows = [row([5], [6, 7], 0.0, f"g{i}", f"t{i}") for i in range(8)]
    orders = [batches_of(tmp_path, rows, 1, seed) for seed in [(0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 1, 0), (0, 1, 0)]]
    assert orders[0] == orders[4]
    assert all(a != b for i, a in enumerate(orders[:4]) for b in orders[:i])


def test_a_trial_branched_into_50_samples_trains_like_the_same_trial_in_one(make_run, trainer):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    norms = []
    # The batch's digest decides which group is updated first. At this learning rate the order makes no difference.
    settings = {"loss_agg_mode": "seq-mean-token-mean", "ppo_mini_batch_size": 4, "optim": {"lr": 1e-9}}
    for branches in (1, 50):
        request = run.request(base, branched_rows(branches), **settings)
        metrics = trainer.train_step(request, Progress())["metrics"]
        assert metrics["actor/updates"] == 2
        norms.append(metrics["actor/grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


def test_a_groups_only_trial_in_a_batch_is_trained_with_the_groups_other_trials_as_its_baseline(make_run, trainer):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    lone = row([5, 6], [9, 10], 1.0, "g", "a", companions=[[("reward", 0.0)], [("reward", 0.0)]])
    metrics = trainer.train_step(run.request(base, [lone]), Progress())["metrics"]
    assert metrics["train/companions"] == 2 and metrics["train/groups_without_spread"] == 0
    assert metrics["critic/advantages/max"] > 1 and metrics["actor/updates"] == 1
