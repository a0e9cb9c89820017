"""Reads a batch: an immutable Arrow IPC file named after its own sha256, a row a sample."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from .errors import GpuWorkerError

COLUMNS = ("token_ids", "loss_mask", "logprobs", "temperature", "rewards", "group_id", "trial_id")


@dataclass(frozen=True)
class Sample:
    """One trainable token sequence; the three arrays have one entry a token.

    `logprobs` is only meaningful where `loss_mask`.
    """

    token_ids: np.ndarray
    loss_mask: np.ndarray
    logprobs: np.ndarray
    temperature: float
    rewards: dict[str, float]
    group_id: str
    trial_id: str

    @property
    def trained_tokens(self) -> int:
        return int(self.loss_mask.sum())


def _bad(path: Path, what: str) -> GpuWorkerError:
    return GpuWorkerError("BadBatch", f"batch {path}: {what}; redo the iteration so that the batch is assembled again")


def read_batch(path: Path, sha256: str) -> list[Sample]:
    """Samples in file order. Raises `MissingBatch` or `BadBatch`, naming the row and what is wrong with it."""
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise GpuWorkerError(
            "MissingBatch", f"batch {path} cannot be read: {error.strerror}; is TRIALGATE_HOME shared?"
        ) from error
    found = hashlib.sha256(payload).hexdigest()
    if found != sha256:
        raise _bad(path, f"its sha256 is {found}, expected {sha256}")
    try:
        table = pa.ipc.open_file(pa.BufferReader(payload)).read_all()
    except pa.ArrowInvalid as error:
        raise _bad(path, f"not an Arrow IPC file ({error})") from error
    if missing := [c for c in COLUMNS if c not in table.column_names]:
        raise _bad(path, f"no column {missing[0]!r}")
    if table.num_rows == 0:
        raise _bad(path, "it has no samples")
    rows = zip(*(table.column(c).to_pylist() for c in COLUMNS), strict=True)
    return [_sample(path, number, row) for number, row in enumerate(rows)]


def _sample(path: Path, number: int, row: tuple) -> Sample:
    token_ids, loss_mask, logprobs, temperature, rewards, group_id, trial_id = row
    try:
        sample = Sample(
            np.asarray(token_ids, dtype=np.int64),
            np.asarray(loss_mask, dtype=bool),
            np.asarray([p or 0.0 for p in logprobs], dtype=np.float32),
            float(temperature),
            {str(name): float(value) for name, value in dict(rewards).items()},
            str(group_id),
            str(trial_id),
        )
    except (TypeError, ValueError) as error:
        raise _bad(path, f"row {number} has a value of the wrong type ({error})") from error
    length = len(sample.token_ids)
    if not length == len(sample.loss_mask) == len(sample.logprobs):
        lengths = f"{length} ids, {len(sample.loss_mask)} mask entries, {len(sample.logprobs)} log-probabilities"
        raise _bad(path, f"row {number} (trial {trial_id}) has unequal lengths: {lengths}")
    if sample.loss_mask.any() and sample.loss_mask[0]:
        raise _bad(path, f"row {number} (trial {trial_id}) trains its first token, which nothing predicts")
    if not sample.loss_mask.any():
        raise _bad(path, f"row {number} (trial {trial_id}) has no trained token")
    if not np.isfinite(sample.logprobs).all() or not np.isfinite(list(sample.rewards.values())).all():
        raise _bad(path, f"row {number} (trial {trial_id}) has a log-probability or reward that is not finite")
    if not sample.temperature > 0:
        raise _bad(
            path,
            f"row {number} (trial {trial_id}) has temperature {sample.temperature}; greedy samples cannot be trained",
        )
    return sample
