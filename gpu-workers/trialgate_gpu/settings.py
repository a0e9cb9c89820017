"""The trainer's settings as the run file gives them, checked once when a step begins."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from .errors import GpuWorkerError
from .objectives import OBJECTIVES
from .token_shares import LOSS_AGG_MODES

ROLLOUT_IS = ("token", "sequence", "none")
HEAD_DTYPES = ("model", "float32")
ROLLOUT_RS = (None, "token_k1", "seq_mean_k1")


@dataclass(frozen=True)
class Optim:
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    clip_grad: float


@dataclass(frozen=True)
class TrainerSettings:
    """`ppo_mini_batch_size` counts trials and is null for the whole batch.

    Defaults are those of the run file (`core/run-config/trainer-settings.ts`), which sends every setting.
    `loss_scale_factor` is Dr. GRPO's constant, in tokens a trial. At most `max_skipped_steps` steps in a row may make
    no update because a number was not finite. The other settings are explained where they are used (`objectives/`,
    `rollout_correction.py`, `teacher.py`, `policy.py`).
    """

    optim: Optim
    objective: str
    clip_ratio_low: float
    clip_ratio_high: float
    clip_ratio_c: float
    rollout_is: str
    rollout_is_threshold: float
    rollout_rs: str | None
    rollout_rs_threshold: tuple[float, float]
    norm_adv_by_std_in_grpo: bool
    loss_agg_mode: str
    loss_scale_factor: float
    head_dtype: str
    ppo_epochs: int
    ppo_mini_batch_size: int | None
    reward_weights: dict[str, float]
    keep_checkpoints: int
    max_skipped_steps: int
    seed: int
    # Only a run with a teacher has these.
    distillation_loss_coef: float = 0.0
    loss_max_clamp: float = 10.0

    def identity(self) -> dict[str, Any]:
        """Returns the settings that influence the weights. They are part of a step's key."""
        shaping = asdict(self)
        del shaping["keep_checkpoints"], shaping["max_skipped_steps"]
        if not self.distillation_loss_coef:
            del shaping["distillation_loss_coef"], shaping["loss_max_clamp"]
        return shaping


def _require_keys(cls: type, given: dict[str, Any], where: str) -> None:
    known = {f.name for f in fields(cls)}
    if unknown := sorted(set(given) - known):
        raise GpuWorkerError("BadSettings", f"{where} has unknown key {unknown[0]!r}; it may have {sorted(known)}")
    required = {f.name for f in fields(cls) if f.default is MISSING}
    if missing := sorted(required - set(given)):
        what = f"{where} lacks key {missing[0]!r}, so the activity worker is of another release than this GPU worker"
        raise GpuWorkerError("BadSettings", f"{what}: start both from the same release")


def parse_settings(given: dict[str, Any]) -> TrainerSettings:
    """Parses the settings; null means the value of the objective's paper. Raises `BadSettings` with the key."""
    _require_keys(TrainerSettings, given, "trainer")
    _require_keys(Optim, given["optim"], "trainer.optim")
    optim = {key: value if key == "betas" else float(value) for key, value in given["optim"].items()}
    optim["betas"] = tuple(float(beta) for beta in optim["betas"])
    objective = given["objective"]
    _one_of("objective", objective, tuple(OBJECTIVES))
    of_paper = OBJECTIVES[objective].defaults
    chosen = {key: of_paper.get(key) if value is None else value for key, value in given.items()}
    settings = TrainerSettings(**{**chosen, "optim": Optim(**optim)})
    _one_of("loss_agg_mode", settings.loss_agg_mode, LOSS_AGG_MODES)
    _one_of("rollout_is", settings.rollout_is, ROLLOUT_IS)
    _one_of("rollout_rs", settings.rollout_rs, ROLLOUT_RS)
    _one_of("head_dtype", settings.head_dtype, HEAD_DTYPES)
    # A cap below 1 would also weaken tokens that the starting weights themselves sampled.
    _at_least("rollout_is_threshold", settings.rollout_is_threshold, 1)
    _at_least("clip_ratio_c", settings.clip_ratio_c, 1 + settings.clip_ratio_high if objective != "cispo" else 1)
    low, high = settings.rollout_rs_threshold
    if not 0 <= low <= 1 <= high:
        raise GpuWorkerError(
            "BadSettings", f"trainer.rollout_rs_threshold is [{low}, {high}], not a band around the ratio 1"
        )
    for key in ("ppo_epochs", "keep_checkpoints"):
        _at_least(key, getattr(settings, key), 1)
    _at_least("ppo_mini_batch_size", settings.ppo_mini_batch_size or 1, 1)
    _at_least("distillation_loss_coef", settings.distillation_loss_coef, 0)
    _at_least("loss_max_clamp", settings.loss_max_clamp, 0)
    _at_least("max_skipped_steps", settings.max_skipped_steps, 0)
    return settings


def _one_of(key: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise GpuWorkerError("BadSettings", f"trainer.{key} is {value!r}, not one of {known}")


def _at_least(key: str, value: object, least: float) -> None:
    if not isinstance(value, int | float) or not least <= value < math.inf:
        raise GpuWorkerError("BadSettings", f"trainer.{key} is {value!r}, not a number of at least {least:g}")
