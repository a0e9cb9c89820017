import pyarrow as pa
import pytest

from conftest import BATCH_SCHEMA, row, two_groups, write_batch

from .batch import read_batch
from .errors import GpuWorkerError, NotFiniteError


def refused(tmp_path, rows, match, schema=None, version=0):
    path, sha256 = write_batch(tmp_path, rows, schema)
    with pytest.raises(GpuWorkerError, match=match) as caught:
        read_batch(path, sha256, version)
    assert caught.value.kind == "BadBatch"


def test_the_trainer_reads_a_batchs_samples_in_the_order_of_the_file(tmp_path):
    samples = read_batch(*write_batch(tmp_path, two_groups()), 0)
    assert [s.trial_id for s in samples][:3] == ["t0-0", "t0-1", "t0-2"]
    assert samples[1].trained_tokens == 6


def test_a_batch_file_with_a_changed_byte_is_refused(tmp_path):
    path, sha256 = write_batch(tmp_path, two_groups())
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(GpuWorkerError, match=f"but {sha256} was recorded"):
        read_batch(path, sha256, 0)


def test_a_missing_batch_file_is_named_in_the_error(tmp_path):
    with pytest.raises(GpuWorkerError, match=r"none\.arrow cannot be read") as caught:
        read_batch(tmp_path / "none.arrow", "0" * 64, 0)
    assert caught.value.kind == "MissingBatch"


@pytest.mark.parametrize("column", ["temperature", "companions", "policy_versions"])
def test_a_batch_file_without_a_column_is_refused_with_the_columns_name(tmp_path, column):
    schema = pa.schema([f for f in BATCH_SCHEMA if f.name != column])
    rows = [{k: v for k, v in r.items() if k != column} for r in two_groups()]
    refused(tmp_path, rows, f"no column '{column}'; redo the iteration", schema)


@pytest.mark.parametrize("version", [float("nan"), float("inf"), 0.5])
def test_a_batch_whose_policy_versions_are_no_integers_is_refused(tmp_path, version):
    fields = [pa.field(f.name, pa.list_(pa.float32())) if f.name == "policy_versions" else f for f in BATCH_SCHEMA]
    refused(tmp_path, [row([1], [2], 1.0, "g", "t", policy_versions=[None, version])], "wrong type", pa.schema(fields))


def test_a_batch_with_a_token_that_a_version_after_the_parent_sampled_is_refused(tmp_path):
    rows = [row([1], [2, 3], 1.0, "g", "t", policy_versions=[None, 2, 4])]
    refused(tmp_path, rows, r"row 0 \(trial t\) .* policy version 4 sampled, after version 3", version=3)
    (sample,) = read_batch(*write_batch(tmp_path, rows), 4)
    assert sample.trained_versions.tolist() == [2, 4]


@pytest.mark.parametrize("rollout_logprob", [-1e9, 0.0, 1e-6])
def test_a_rollout_log_probability_that_is_very_low_or_above_0_by_rounding_is_accepted(tmp_path, rollout_logprob):
    (sample,) = read_batch(*write_batch(tmp_path, [row([1], [2], 1.0, "g", "t", logprobs=[0.0, rollout_logprob])]), 0)
    assert sample.rollout_logprobs.tolist() == pytest.approx([0.0, rollout_logprob])


def test_the_rewards_of_a_groups_trials_outside_the_batch_are_read_with_their_names(tmp_path):
    rows = [row([1], [2], 1.0, "g", "t", companions=[[("reward", 0.0), ("style", 1.0)], [("reward", 0.5)]])]
    (sample,) = read_batch(*write_batch(tmp_path, rows), 0)
    assert sample.companions == [{"reward": 0.0, "style": 1.0}, {"reward": 0.5}]


def in_turns(**changes):
    companions = {"companions": [[("steps", 0.5)]], "companion_turn_rewards": [[("steps", [0.25, 0.25])]]}
    given = {"turns": [None, 0, 2], "turn_rewards": [("steps", [0.5, 0.0])]} | companions | changes
    return row([1], [2, 3], 1.0, "g", "t", **given)


def test_turn_rewards_are_read_for_the_trials_of_the_batch_and_for_the_other_trials_of_their_groups(tmp_path):
    (sample,) = read_batch(*write_batch(tmp_path, [in_turns()]), 0)
    assert sample.turns[sample.loss_mask].tolist() == [0, 2]
    assert sample.turn_rewards == {"steps": [0.5, 0.0]}
    assert sample.companion_turn_rewards == [{"steps": [0.25, 0.25]}]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"turns": [None, 0]}, "trained token without a turn"),
        ({"turns": [None, 0, None]}, "trained token without a turn"),
        ({"turn_rewards": [("steps", None)]}, "wrong type"),
        ({"companions": []}, "companions without their turns"),
    ],
)
def test_a_batch_whose_row_has_invalid_turns_is_refused_with_the_reason(tmp_path, changes, match):
    refused(tmp_path, [in_turns(**changes)], match)


def test_a_batch_with_a_turn_reward_that_is_not_finite_raises_the_error_that_skips_the_train_step(tmp_path):
    path, sha256 = write_batch(tmp_path, [in_turns(turn_rewards=[("steps", [0.5, float("nan")])])])
    with pytest.raises(NotFiniteError, match="trial t has a reward"):
        read_batch(path, sha256, 0)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"logprobs": [0.0]}, "row 0 .* unequal lengths: 2 ids, 2 mask entries, 1 log-probabilities"),
        ({"loss_mask": [0, 0]}, "no trained token"),
        ({"loss_mask": [1, 1]}, "trains its first token"),
        ({"temperature": 0.0}, "temperature 0.0"),
        ({"token_ids": None}, "wrong type|unequal"),
        ({"policy_versions": [0]}, "unequal lengths: .* 1 policy versions"),
        ({"policy_versions": None}, "wrong type"),
        ({"policy_versions": [None, None]}, "trained token without a policy version"),
        ({"policy_versions": [None, -1]}, "trained token without a policy version"),
        ({"policy_versions": [None, 1]}, "policy version 1 sampled, after version 0"),
        ({"logprobs": [0.0, 0.5]}, "rollout log-probability of 0.5, above 0"),
        ({"companions": None}, "wrong type"),
        ({"companions": [[("reward", None)]]}, "wrong type"),
    ],
)
def test_a_batch_with_an_invalid_row_is_refused_with_the_reason(tmp_path, changes, match):
    refused(tmp_path, [row([1], [2], 1.0, "g", "t", **changes)], match)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"logprobs": [0.0, float("nan")]}, "trial t has a rollout log-probability"),
        ({"rewards": [("reward", float("inf"))]}, "trial t has a reward"),
        ({"companions": [[("reward", float("nan"))]]}, "trial t has a reward"),
    ],
)
def test_a_batch_with_a_number_that_is_not_finite_raises_the_error_that_skips_the_train_step(tmp_path, changes, match):
    path, sha256 = write_batch(tmp_path, [row([1], [2], 1.0, "g", "t", **changes)])
    with pytest.raises(NotFiniteError, match=match):
        read_batch(path, sha256, 0)


def test_a_batch_without_samples_is_refused(tmp_path):
    refused(tmp_path, [], "no samples")
