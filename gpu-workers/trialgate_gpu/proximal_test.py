import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import settings_with, two_groups, write_batch

from .batch import read_batch
from .errors import GpuWorkerError
from .head import token_logprobs
from .manifest import read_manifest
from .optimize import Tally, backward
from .pack import make_packs
from .policy import Policy
from .prefix import Prefixes
from .prepare import prepare
from .progress import Progress
from .proximal import Proximal
from .token_shares import token_shares
from .train_step_test import fresh

PACK_TOKENS = 64
TRAINER = settings_with()


def noise(shape, scale):
    return torch.randn(shape) * scale


@pytest.fixture
def lineage(make_run):
    """Returns a run, a trainer and a version 1 with the weights of version 0, because its batch had no advantages."""
    run, trainer = make_run(), fresh()
    base = run.base(trainer)["checkpoint"]
    one = trainer.train_step(run.request(base, two_groups(spread=False)), Progress())
    return run, trainer, one["checkpoint"]


def prepared_from(folder, rows, version=0, settings=TRAINER):
    return prepare(read_batch(*write_batch(folder, rows), version), settings, version)


def resampled(folder, rows, model, version, difference=0.0):
    """Returns `rows` as if `version` had sampled them with the log-probabilities of `model` plus `difference`."""
    chains = prepared_from(folder / "unused", rows).chains
    proximal = Proximal()
    proximal.measure(Policy(model, torch.device("cpu")), chains, PACK_TOKENS, Progress())
    result = []
    for item, row in zip(chains, rows, strict=True):
        prompt = len(row["token_ids"]) - len(item.targets)
        sampled = (proximal.of(next(make_packs([item], PACK_TOKENS))) + difference).tolist()
        versions = [None] * prompt + [version] * len(item.targets)
        result.append(row | {"logprobs": [0.0] * prompt + sampled, "policy_versions": versions})
    return result


def step(lineage, rows, **settings):
    run, trainer, parent = lineage
    return trainer.train_step(run.request(parent, rows, 2, **settings), Progress())


def test_the_gradient_with_importance_weights_equals_that_of_pytorch_autograd(tiny_model, tmp_path):
    settings = settings_with(rollout_is_threshold=1.5)
    policy = Policy(tiny_model, torch.device("cpu"))
    policy.model.float()
    prepared = prepared_from(tmp_path, resampled(tmp_path, two_groups(), tiny_model, 0), 3, settings)
    torch.manual_seed(1)
    chains = [
        replace(c, rollout_logprobs=c.rollout_logprobs + noise(len(c.targets), 0.5).numpy()) for c in prepared.learned
    ]
    proximal = Proximal()
    proximal.measure(policy, chains, PACK_TOKENS, Progress())
    old_logprobs = {c.sample: proximal.of(next(make_packs([c], PACK_TOKENS))) for c in chains}
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(noise(parameter.shape, 0.05))

    weight = token_shares(prepared.samples, settings.loss_agg_mode, None)
    tally = Tally()
    tally.norms.append(1.0)
    gradient = policy.start_gradient()
    prefixes = Prefixes()
    for pack in make_packs(chains, PACK_TOKENS):
        backward(policy, pack, prefixes, weight, proximal, settings, tally)
    prefixes.end()
    found = gradient.clone()

    gradient = policy.start_gradient()
    policy.model.set_attn_implementation("eager")
    total, clipped, truncated = 0.0, 0, 0
    for item in chains:
        ids = torch.from_numpy(prepared.samples[item.sample].token_ids)[None]
        logprobs = policy.model(ids).logits[0].log_softmax(-1)[item.predictors, item.targets]
        ratio = (logprobs - old_logprobs[item.sample]).exp()
        correction = (old_logprobs[item.sample] - torch.from_numpy(item.rollout_logprobs)).exp()
        advantage = float(item.advantages[0])
        loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
        total = total + (loss * correction.clamp(max=1.5)).sum() * weight[item.sample]
        clipped += int((loss > -advantage * ratio).sum())
        truncated += int((correction > 1.5).sum())
    total.backward()
    assert clipped and truncated, "the case must exercise both"
    assert clipped == tally.clipped
    assert tally.loss == pytest.approx(total.item(), rel=1e-4)
    torch.testing.assert_close(found, gradient, atol=1e-5, rtol=1e-3)


def test_old_log_probabilities_stay_with_their_samples_when_the_packs_differ(tiny_model, tmp_path):
    policy = Policy(tiny_model, torch.device("cpu"))
    policy.model.float()
    chains = prepared_from(tmp_path, two_groups()).chains
    proximal = Proximal()
    proximal.measure(policy, chains, PACK_TOKENS, Progress())
    for limit in (1, 10_000):
        for pack in make_packs(chains[::-1], limit):
            expected = token_logprobs(policy.infer(pack), policy.head, pack)
            torch.testing.assert_close(proximal.of(pack), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"ppo_epochs": 2}])
def test_stale_tokens_whose_rollout_log_probabilities_equal_the_old_ones_train_like_fresh_tokens(
    lineage, tiny_model, tmp_path, settings
):
    made = [step(lineage, resampled(tmp_path, two_groups(), tiny_model, version), **settings) for version in (0, 1)]
    stale, on_policy = (m["metrics"] for m in made)
    # The key of a step covers its batch, and a checkpoint's checksum that key: the weights' own checksum is compared.
    weights = [read_manifest(Path(each["checkpoint"])).weights_sha256 for each in made]
    assert weights[0] == weights[1]
    assert stale["staleness/mean"] == stale["staleness/max"] == 1
    assert stale["tokens/stale"] == stale["tokens/trained"]
    assert on_policy["staleness/max"] == on_policy["tokens/stale"] == 0
    for metrics in (stale, on_policy):
        assert metrics["rollout_corr/rollout_is_mean"] == 1 and metrics["rollout_corr/kl"] == 0
        assert metrics["actor/entropy"] > 0


def test_a_train_step_without_advantages_computes_no_log_probabilities(lineage, tiny_model, tmp_path):
    flat = [r | {"rewards": [("reward", 0.5)]} for r in resampled(tmp_path, two_groups(), tiny_model, 0)]
    metrics = step(lineage, flat)["metrics"]
    assert "rollout_corr/kl" not in metrics and metrics["tokens/computed"] == 0


@pytest.mark.parametrize(
    ("difference", "threshold", "weight"),
    [(-math.log(5), 2.0, 2.0), (-math.log(5), 10.0, 5.0), (math.log(4), 2.0, 0.25)],
)
def test_a_tokens_importance_weight_is_the_ratio_of_old_to_rollout_probability_at_most_the_threshold(
    lineage, tiny_model, tmp_path, difference, threshold, weight
):
    plain = step(lineage, resampled(tmp_path, two_groups(), tiny_model, 0))["metrics"]
    rows = resampled(tmp_path, two_groups(), tiny_model, 0, difference)
    metrics = step(lineage, rows, rollout_is_threshold=threshold)["metrics"]
    assert metrics["actor/grad_norm"] / plain["actor/grad_norm"] == pytest.approx(weight, rel=0.02)
    for name in ("mean", "max", "min"):
        assert metrics[f"rollout_corr/rollout_is_{name}"] == pytest.approx(weight, rel=1e-4)
    assert metrics["rollout_corr/rollout_is_ratio_fraction_high"] == float(weight == threshold)
    assert metrics["rollout_corr/kl"] == pytest.approx(difference, abs=1e-4)
    assert metrics["actor/ppo_kl"] == 0


@pytest.mark.parametrize("difference", [-1e4, -3e38])
def test_a_train_step_leaves_all_weights_finite_when_a_ratio_of_probabilities_overflows(
    lineage, tiny_model, tmp_path, difference
):
    made = step(
        lineage, resampled(tmp_path, two_groups(), tiny_model, 0, difference), ppo_epochs=2, ppo_mini_batch_size=4
    )
    metrics = made["metrics"]
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["rollout_corr/rollout_is_max"] == pytest.approx(2.0)
    assert all(math.isfinite(p) for p in made["canary"]["logprobs"])


def test_only_samples_after_the_first_mini_batch_need_a_pass_of_their_own_for_old_log_probabilities(
    lineage, tiny_model, tmp_path
):
    rows = resampled(tmp_path, two_groups(), tiny_model, 0)
    whole = step(lineage, rows)["metrics"]
    halves = step(lineage, rows, ppo_mini_batch_size=4)["metrics"]
    assert whole["tokens/proximal"] == 0
    assert 0 < halves["tokens/proximal"] < whole["tokens/computed"]
    assert halves["actor/updates"] == 2


def test_a_train_steps_later_epochs_are_clipped_against_the_weights_at_the_start_of_the_step(
    lineage, tiny_model, tmp_path
):
    rows = resampled(tmp_path, two_groups(), tiny_model, 0)
    metrics = step(lineage, rows, ppo_epochs=3, optim={"lr": 1e-1})["metrics"]
    assert metrics["actor/pg_clipfrac"] > 0
    assert metrics["rollout_corr/kl"] == 0


def test_a_train_step_with_a_token_that_a_version_after_the_parent_sampled_fails_and_leaves_no_files(make_run, trainer):
    run = make_run()
    base = run.base(trainer)["checkpoint"]
    rows = two_groups()
    rows[5]["policy_versions"][-1] = 1
    with pytest.raises(GpuWorkerError, match=r"row 5 \(trial t1-1\) .* version 1 sampled, after version 0") as caught:
        trainer.train_step(run.request(base, rows), Progress())
    assert caught.value.kind == "BadBatch"
    assert [p.name for p in (run.home / "checkpoints").iterdir()] == [Path(base).name]


@pytest.mark.parametrize("threshold", [0.5, 0, float("nan"), float("inf"), "two"])
def test_a_rollout_is_threshold_below_1_or_not_finite_is_refused_and_the_error_names_the_setting(threshold):
    with pytest.raises(GpuWorkerError, match="rollout_is_threshold"):
        settings_with(rollout_is_threshold=threshold)


def test_train_steps_with_different_rollout_is_threshold_have_different_keys():
    assert settings_with(rollout_is_threshold=3).identity() != settings_with().identity()


@pytest.mark.parametrize("settings", [{}, {"ppo_epochs": 2, "ppo_mini_batch_size": 4}, {"rollout_is": "sequence"}])
def test_one_token_with_an_extreme_rollout_log_probability_does_not_dominate_a_train_step(
    make_run, tiny_model, tmp_path, settings
):
    run, trainer = make_run(), fresh()
    base = run.base(trainer)["checkpoint"]
    rows = resampled(tmp_path, two_groups(), tiny_model, 0)
    clean = trainer.train_step(run.request(base, rows, **settings), Progress())["metrics"]
    # This is the worst trial of its group. Its advantage is negative, where PPO's clip sets no upper bound.
    for rollout_logprob in (-8.0, -14.0, -24.0, -1e9, 0.0):
        rows[0]["logprobs"][-2] = rollout_logprob
        outlier = trainer.train_step(run.request(base, rows, **settings), Progress())["metrics"]
        assert outlier["actor/grad_norm"] <= 4 * clean["actor/grad_norm"], rollout_logprob
        assert outlier["rollout_corr/log_ratio_max"] > 3, rollout_logprob
