"""Reads a batch: an immutable Arrow IPC file named after its own sha256, with one sample a row."""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from .errors import GpuWorkerError, NotFiniteError
from .pack import SamplingMask
from .routing import RecordedRows

COLUMNS = (
    "token_ids",
    "loss_mask",
    "logprobs",  # The file's name for `rollout_logprobs`.
    "policy_versions",
    "temperature",
    "rewards",
    "companions",
    "group_id",
    "trial_id",
)
# Batches of releases before 0.4 lack this column.
SAMPLING_MASK = "sampling_mask"
# Only batches with rewards turn by turn have these columns.
TURN_COLUMNS = ("turns", "turn_rewards", "companion_turn_rewards")
# Only batches of a run with a teacher have this column.
TEACHER = "teacher_logprobs"
# Only batches that were made with `enable_router_replay` have this column, and only they are replayed.
ROUTED_EXPERTS = "routed_experts"
NO_VERSION = -1
NO_TURN = -1
TurnRewards = dict[str, list[float]]
# Rounding may put a log-probability this far above 0. The gateway has the same bound (`tokens.ts`).
ROUNDING = 1e-3


@dataclass(frozen=True)
class Sample:
    """One trainable token sequence. The first four arrays have one entry a token.

    `rollout_logprobs` and `policy_versions` (which sampled the token) count only where `loss_mask` is 1.
    `sampling_mask` has for each token the ids over which its log-probability is normalized, ascending, or None for all
    ids. `companions` are the rewards of the trials of the same group that have no samples in the batch.

    `turns` has the turn that sampled each trained token, or is None without rewards turn by turn. `turn_rewards` has
    what each turn earned of the reward of the same name; `companion_turn_rewards` has the same for each companion.

    `teacher_logprobs` is [tokens], NaN where the teacher was not asked, or None without a teacher.
    `routed_experts` has what each of its calls recorded of the experts of a mixture, or is None in a batch that was not
    made for router replay.
    """

    token_ids: np.ndarray
    loss_mask: np.ndarray
    rollout_logprobs: np.ndarray
    policy_versions: np.ndarray
    temperature: float
    rewards: dict[str, float]
    companions: list[dict[str, float]]
    group_id: str
    trial_id: str
    sampling_mask: SamplingMask | None = None
    turns: np.ndarray | None = None
    turn_rewards: TurnRewards = field(default_factory=dict)
    companion_turn_rewards: list[TurnRewards] = field(default_factory=list)
    teacher_logprobs: np.ndarray | None = None
    routed_experts: list[RecordedRows] | None = None

    @property
    def trained_tokens(self) -> int:
        return int(self.loss_mask.sum())

    @property
    def trained_versions(self) -> np.ndarray:
        """Returns [trained tokens]."""
        return self.policy_versions[self.loss_mask]


def _bad(path: Path, what: str) -> GpuWorkerError:
    return GpuWorkerError("BadBatch", f"batch {path}: {what}; redo the iteration so that the batch is assembled again")


def read_batch(path: Path, sha256: str, parent_version: int, with_experts: bool = False) -> list[Sample]:
    """Returns the samples in file order. No token of theirs may come from a version after `parent_version`.

    Without `with_experts` their `routed_experts` are not read, and are None.

    Raises `MissingBatch`, or `BadBatch` with the row and its fault, and `NotFiniteError` for a row whose reward or
    log-probability is NaN or infinite.
    """
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise GpuWorkerError(
            "MissingBatch", f"batch {path} cannot be read: {error.strerror}; is TRIALGATE_HOME shared?"
        ) from error
    found = hashlib.sha256(payload).hexdigest()
    if found != sha256:
        raise _bad(path, f"its sha256 is {found}, but {sha256} was recorded")
    try:
        table = pa.ipc.open_file(pa.BufferReader(payload)).read_all()
    except pa.ArrowInvalid as error:
        raise _bad(path, f"it is not an Arrow IPC file ({error})") from error
    if missing := [c for c in COLUMNS if c not in table.column_names]:
        raise _bad(path, f"it has no column {missing[0]!r}")
    if table.num_rows == 0:
        raise _bad(path, "it has no samples")

    table = table if with_experts or ROUTED_EXPERTS not in table.column_names else table.drop_columns(ROUTED_EXPERTS)

    def optional(name: str) -> list:
        return table.column(name).to_pylist() if name in table.column_names else [None] * table.num_rows

    rows = zip(
        *(table.column(c).to_pylist() for c in COLUMNS),
        optional(SAMPLING_MASK),
        *(optional(c) for c in TURN_COLUMNS),
        optional(TEACHER),
        optional(ROUTED_EXPERTS),
        strict=True,
    )
    return [_sample(path, number, row, parent_version) for number, row in enumerate(rows)]


def _named(rewards: list[tuple[str, float]]) -> dict[str, float]:
    return {str(name): float(value) for name, value in dict(rewards).items()}


def _turn_rewards(rewards: list[tuple[str, list[float]]] | None) -> TurnRewards:
    return {str(name): [float(value) for value in values] for name, values in dict(rewards or []).items()}


def _sampling_mask(masks: list[list[int] | None] | None) -> SamplingMask | None:
    if masks is None or all(ids is None for ids in masks):
        return None
    return [None if ids is None else np.unique(np.asarray(ids, dtype=np.int64)) for ids in masks]


def _is_mask_of(masks: SamplingMask, token_ids: np.ndarray) -> bool:
    return len(masks) == len(token_ids) and all(
        ids is None or token in ids for ids, token in zip(masks, token_ids, strict=True)
    )


def _sample(path: Path, number: int, row: tuple, parent_version: int) -> Sample:
    token_ids, loss_mask, rollout_logprobs, policy_versions, temperature = row[:5]
    rewards, companions, group_id, trial_id = row[5:9]
    masks, turns, turn_rewards, companion_turn_rewards, teacher, experts = row[9:]
    try:
        sample = Sample(
            np.asarray(token_ids, dtype=np.int64),
            np.asarray(loss_mask, dtype=bool),
            np.asarray([p or 0.0 for p in rollout_logprobs], dtype=np.float32),
            np.asarray([NO_VERSION if v is None else operator.index(v) for v in policy_versions], dtype=np.int64),
            float(temperature),
            _named(rewards),
            [_named(companion) for companion in companions],
            str(group_id),
            str(trial_id),
            _sampling_mask(masks),
            None if turns is None else np.asarray([NO_TURN if t is None else operator.index(t) for t in turns]),
            _turn_rewards(turn_rewards),
            [_turn_rewards(companion) for companion in companion_turn_rewards or []],
            None if teacher is None else np.asarray([np.nan if p is None else p for p in teacher], dtype=np.float32),
            None if experts is None else [RecordedRows(**each) for each in experts],
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise _bad(path, f"row {number} has a value of the wrong type ({error})") from error
    length = len(sample.token_ids)
    if not length == len(sample.loss_mask) == len(sample.rollout_logprobs) == len(sample.policy_versions):
        lengths = (
            f"{length} ids, {len(sample.loss_mask)} mask entries, {len(sample.rollout_logprobs)} log-probabilities, "
            f"{len(sample.policy_versions)} policy versions"
        )
        raise _bad(path, f"row {number} (trial {trial_id}) has unequal lengths: {lengths}")
    if sample.turns is not None and (len(sample.turns) != length or (sample.turns[sample.loss_mask] < 0).any()):
        raise _bad(path, f"row {number} (trial {trial_id}) has a trained token without a turn")
    if sample.teacher_logprobs is not None and len(sample.teacher_logprobs) != length:
        raise _bad(path, f"row {number} (trial {trial_id}) has a teacher's log-probabilities for other tokens")
    if sample.companion_turn_rewards and len(sample.companion_turn_rewards) != len(sample.companions):
        raise _bad(path, f"row {number} (trial {trial_id}) has companions without their turns")
    if sample.sampling_mask is not None and not _is_mask_of(sample.sampling_mask, sample.token_ids):
        raise _bad(path, f"row {number} (trial {trial_id}) has a sampling mask that lacks a sampled token")
    if sample.loss_mask.any() and sample.loss_mask[0]:
        raise _bad(path, f"row {number} (trial {trial_id}) trains its first token, which nothing predicts")
    if not sample.loss_mask.any():
        raise _bad(path, f"row {number} (trial {trial_id}) has no trained token")
    numbers = [value for named in (sample.rewards, *sample.companions) for value in named.values()]
    of_turns = (sample.turn_rewards, *sample.companion_turn_rewards)
    numbers += [value for named in of_turns for values in named.values() for value in values]
    if not np.isfinite(numbers).all():
        raise NotFiniteError(f"trial {trial_id} has a reward that is not finite")
    if not np.isfinite(sample.rollout_logprobs).all():
        raise NotFiniteError(f"trial {trial_id} has a rollout log-probability that is not finite")
    # A probability above 1 is impossible, so the engine's other log-probabilities cannot be trusted either.
    if (highest := sample.rollout_logprobs[sample.loss_mask].max()) > ROUNDING:
        raise _bad(path, f"row {number} (trial {trial_id}) has a rollout log-probability of {highest:g}, above 0")
    versions = sample.trained_versions
    if versions.min() < 0:
        raise _bad(path, f"row {number} (trial {trial_id}) has a trained token without a policy version")
    if versions.max() > parent_version:
        raise _bad(
            path,
            f"row {number} (trial {trial_id}) has a token that policy version {versions.max()} sampled, after version "
            f"{parent_version} from which this step starts",
        )
    if not sample.temperature > 0:
        raise _bad(
            path,
            f"row {number} (trial {trial_id}) has temperature {sample.temperature}; greedy samples cannot be trained",
        )
    return sample
