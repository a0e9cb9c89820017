import pyarrow as pa
import pytest

from conftest import SCHEMA, row, two_groups, write_batch

from .batch import read_batch
from .errors import GpuWorkerError


def refused(tmp_path, rows, match, schema=SCHEMA):
    path, sha256 = write_batch(tmp_path, rows, schema)
    with pytest.raises(GpuWorkerError, match=match) as caught:
        read_batch(path, sha256)
    assert caught.value.kind == "BadBatch"


def test_rows_come_back_in_file_order(tmp_path):
    samples = read_batch(*write_batch(tmp_path, two_groups()))
    assert [s.trial_id for s in samples][:3] == ["t0-0", "t0-1", "t0-2"]
    assert samples[1].trained_tokens == 6


def test_changed_byte_is_noticed(tmp_path):
    path, sha256 = write_batch(tmp_path, two_groups())
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(GpuWorkerError, match=f"expected {sha256}"):
        read_batch(path, sha256)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(GpuWorkerError, match=r"none\.arrow cannot be read") as caught:
        read_batch(tmp_path / "none.arrow", "0" * 64)
    assert caught.value.kind == "MissingBatch"


def test_missing_column_is_named(tmp_path):
    schema = pa.schema([f for f in SCHEMA if f.name != "temperature"])
    rows = [{k: v for k, v in r.items() if k != "temperature"} for r in two_groups()]
    refused(tmp_path, rows, "no column 'temperature'", schema)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"logprobs": [0.0]}, "row 0 .* unequal lengths: 2 ids, 2 mask entries, 1 log-probabilities"),
        ({"loss_mask": [0, 0]}, "no trained token"),
        ({"loss_mask": [1, 1]}, "trains its first token"),
        ({"temperature": 0.0}, "temperature 0.0"),
        ({"logprobs": [0.0, float("nan")]}, "not finite"),
        ({"rewards": [("reward", float("inf"))]}, "not finite"),
        ({"token_ids": None}, "wrong type|unequal"),
    ],
)
def test_bad_row_is_named(tmp_path, changes, match):
    refused(tmp_path, [row([1], [2], 1.0, "g", "t", **changes)], match)


def test_batch_without_samples_is_refused(tmp_path):
    refused(tmp_path, [], "no samples")
