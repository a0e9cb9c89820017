"""The trainer's settings as they come from the run file, checked once at the border."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .errors import GpuWorkerError

LOSS_AGG_MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm")


@dataclass(frozen=True)
class Optim:
    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_grad: float = 1.0


@dataclass(frozen=True)
class TrainerSettings:
    """`ppo_mini_batch_size` counts samples and is null for the whole batch; `loss_scale_factor` is Dr.

    GRPO's constant length; `rollout_is_threshold` caps the importance weight of stale tokens; at most
    `max_skipped_steps` steps in a row may make no update because a number of theirs was not finite.
    """

    optim: Optim = field(default_factory=Optim)
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    rollout_is_threshold: float = 2.0
    norm_adv_by_std_in_grpo: bool = True
    loss_agg_mode: str = "token-mean"
    loss_scale_factor: float | None = None
    ppo_epochs: int = 1
    ppo_mini_batch_size: int | None = None
    reward_weights: dict[str, float] | None = None
    keep_checkpoints: int = 2
    max_skipped_steps: int = 2
    seed: int = 0

    def identity(self) -> dict[str, Any]:
        """The settings that shape the weights: part of a step's key."""
        shaping = asdict(self)
        del shaping["keep_checkpoints"], shaping["max_skipped_steps"]
        return shaping


def _known(cls: type, given: dict[str, Any], where: str) -> dict[str, Any]:
    known = {f.name for f in fields(cls)}
    if unknown := sorted(set(given) - known):
        raise GpuWorkerError("BadSettings", f"{where} has unknown key {unknown[0]!r}; it may have {sorted(known)}")
    return given


def parse_settings(given: dict[str, Any]) -> TrainerSettings:
    """Raises `BadSettings` naming the key at fault."""
    optim = dict(_known(Optim, given.get("optim") or {}, "trainer.optim"))
    if "betas" in optim:
        optim["betas"] = tuple(float(b) for b in optim["betas"])
    for key in ("lr", "eps", "weight_decay", "clip_grad"):
        if key in optim:
            optim[key] = float(optim[key])
    settings = TrainerSettings(**{**_known(TrainerSettings, given, "trainer"), "optim": Optim(**optim)})
    if settings.loss_agg_mode not in LOSS_AGG_MODES:
        raise GpuWorkerError(
            "BadSettings", f"trainer.loss_agg_mode is {settings.loss_agg_mode!r}, not one of {LOSS_AGG_MODES}"
        )
    threshold = settings.rollout_is_threshold
    if not isinstance(threshold, int | float) or not 1 <= threshold < math.inf:
        # Below 1 the cap would also weaken what the starting weights themselves sampled.
        raise GpuWorkerError(
            "BadSettings", f"trainer.rollout_is_threshold is {threshold!r}, not a number of at least 1"
        )
    if settings.max_skipped_steps < 0:
        raise GpuWorkerError("BadSettings", "trainer.max_skipped_steps must be at least 0")
    if settings.ppo_epochs < 1 or settings.keep_checkpoints < 1 or (settings.ppo_mini_batch_size or 1) < 1:
        raise GpuWorkerError(
            "BadSettings", "trainer.ppo_epochs, keep_checkpoints and ppo_mini_batch_size must be at least 1"
        )
    return settings
