import numpy as np
import pytest

from conftest import OPTIM, SETTINGS, request_settings, row, settings_with, two_groups, write_batch

from .batch import read_batch
from .errors import GpuWorkerError
from .optimize import mini_batches
from .prepare import prepare
from .progress import Progress
from .settings import parse_settings


def forked_rows(forks):
    """Returns two groups of four trials. The second trial of each group is forked into this number of samples."""
    rows = []
    for number, whole in enumerate(two_groups()):
        rows += [whole] * (forks if number % 4 == 1 else 1)
    return rows


def batches_of(tmp_path, rows, size, seed=(0, 0, 0)):
    settings = settings_with(ppo_mini_batch_size=size)
    samples = read_batch(*write_batch(tmp_path, rows), 0)
    made = mini_batches(prepare(samples, settings, 0), settings, list(seed))
    assert sorted(np.concatenate(made)) == list(range(len(rows)))
    return [[samples[i].trial_id for i in members] for members in made]


@pytest.mark.parametrize("forks", [1, 5, 50])
@pytest.mark.parametrize(("size", "updates"), [(None, 1), (8, 1), (4, 2), (3, 3), (1, 8)])
def test_mini_batches_count_trials_and_split_none_however_many_samples_it_has(tmp_path, forks, size, updates):
    made = batches_of(tmp_path, forked_rows(forks), size)
    assert len(made) == updates
    trials = [set(members) for members in made]
    assert sum(map(len, trials)) == 8 and len(set.union(*trials)) == 8
    assert all(len(t) <= (size or 8) for t in trials)


def test_the_order_of_groups_depends_on_step_and_epoch_and_is_repeatable(tmp_path):
    rows = [row([5], [6, 7], 0.0, f"g{i}", f"t{i}") for i in range(8)]
    orders = [batches_of(tmp_path, rows, 1, seed) for seed in [(0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 1, 0), (0, 1, 0)]]
    assert orders[0] == orders[4]
    assert all(a != b for i, a in enumerate(orders[:4]) for b in orders[:i])


def test_a_trial_forked_into_50_samples_trains_like_the_same_trial_in_one(make_run, trainer):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    norms = []
    # The batch's digest decides which group is updated first. At this learning rate the order makes no difference.
    settings = {"loss_agg_mode": "seq-mean-token-mean", "ppo_mini_batch_size": 4, "optim": {"lr": 1e-9}}
    for forks in (1, 50):
        request = run.request(base, forked_rows(forks), **settings)
        metrics = trainer.train_step(request, Progress())["metrics"]
        assert metrics["actor/updates"] == 2
        norms.append(metrics["actor/grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


def test_companions_give_a_baseline_when_only_one_trial_of_a_group_can_be_trained(make_run, trainer):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    lone = row([5, 6], [9, 10], 1.0, "g", "a", companions=[[("reward", 0.0)], [("reward", 0.0)]])
    metrics = trainer.train_step(run.request(base, [lone]), Progress())["metrics"]
    assert metrics["train/companions"] == 2 and metrics["train/groups_without_spread"] == 0
    assert metrics["critic/advantages/max"] > 1 and metrics["actor/updates"] == 1


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"objective": "ppo"}, "objective is 'ppo', not one of"),
        ({"rollout_is": "trial"}, "rollout_is is 'trial'"),
        ({"rollout_rs": "token_k9"}, "rollout_rs is 'token_k9'"),
        ({"rollout_rs_threshold": [1.5, 2]}, "not a band around the ratio 1"),
        ({"clip_ratio_c": 1.1}, "clip_ratio_c is 1.1, not a number of at least 1.2"),
        ({"max_skipped_steps": -1}, "max_skipped_steps"),
    ],
)
def test_a_setting_with_an_impossible_value_is_refused_by_name(given, match):
    with pytest.raises(GpuWorkerError, match=match) as caught:
        settings_with(**given)
    assert caught.value.kind == "BadSettings"


@pytest.mark.parametrize("key", [*SETTINGS, *(f"optim.{name}" for name in OPTIM)])
def test_a_request_without_one_of_the_run_files_settings_is_refused_by_its_name(key):
    request = request_settings()
    name = key.removeprefix("optim.")
    del (request if name == key else request["optim"])[name]
    with pytest.raises(GpuWorkerError, match=f"lacks key '{name}'") as caught:
        parse_settings(request)
    assert caught.value.kind == "BadSettings"


def test_settings_that_a_run_file_leaves_open_have_the_values_of_the_objectives_paper():
    gspo, grpo = settings_with(objective="gspo"), settings_with()
    assert (gspo.clip_ratio_low, gspo.clip_ratio_high, gspo.loss_agg_mode) == (3e-4, 4e-4, "seq-mean-token-mean")
    assert (grpo.clip_ratio_low, grpo.clip_ratio_high, grpo.loss_agg_mode) == (0.2, 0.2, "token-mean")
    assert settings_with(objective="cispo", clip_ratio_high=1).clip_ratio_high == 1
