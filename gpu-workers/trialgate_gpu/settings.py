"""Parses the trainer's settings, which a step's request has in the block `trainer`.

`core/run-config/trainer-settings.ts` declares their types, bounds, defaults and meanings.
`trainer_settings.schema.json` is written from it, and this module checks a block by that schema.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import extend

from .errors import GpuWorkerError
from .lora import Lora
from .objectives import OBJECTIVES

FULL_LR = 3e-5
# LoRA learns best at about ten times the rate of full weights, whatever the rank, with alpha 32
# (Schulman and Thinking Machines, "LoRA Without Regret", 2025).
LORA_LR = 10 * FULL_LR
SCHEMA = json.loads(Path(__file__).with_name("trainer_settings.schema.json").read_text())


def _is_number(_checker: object, value: object) -> bool:
    """Returns True for a finite number. JSON Schema itself knows no NaN, and would let it pass every bound."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_integer(_checker: object, value: object) -> bool:
    """Returns False for 1.0, which JSON Schema takes for an integer but Python's `range` does not."""
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES = Draft202012Validator.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer})
_VALIDATOR = extend(Draft202012Validator, type_checker=_TYPES)(SCHEMA)


@dataclass(frozen=True)
class Optim:
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    clip_grad: float


@dataclass(frozen=True)
class Teacher:
    distillation_loss_coef: float
    loss_max_clamp: float


@dataclass(frozen=True)
class TrainerServer:
    """`model` is the server's name for the run's model, or None where it is the same."""

    url: str
    model: str | None
    timeout: float


_CHANGE_NO_WEIGHT = (
    "keep_checkpoints",
    "keep_interval",
    "save_optimizer_every",
    "keep_trainer_state",
    "max_skipped_steps",
)


@dataclass(frozen=True)
class TrainerSettings:
    """The settings with their types. The objective has filled in those that its paper decides when they are null."""

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
    keep_interval: int | None
    save_optimizer_every: int
    keep_trainer_state: str
    max_skipped_steps: int
    seed: int
    lora_rank: int
    lora_alpha: float
    target_modules: str | list[str]
    enable_router_replay: bool
    teacher: Teacher | None
    trainer_server: TrainerServer | None

    @property
    def lora(self) -> Lora | None:
        return Lora.from_settings(vars(self))

    def identity(self) -> dict[str, Any]:
        """Returns the settings that influence the weights. They are part of a step's key."""
        shaping = asdict(self)
        for name in _CHANGE_NO_WEIGHT:
            del shaping[name]
        if self.lora is None:
            del shaping["lora_rank"], shaping["lora_alpha"], shaping["target_modules"]
        # A step that replays nothing keeps the key that it had before this setting existed.
        if not self.enable_router_replay:
            del shaping["enable_router_replay"]
        # A server may move. What it computes with is the model that it was started with.
        server = shaping.pop("trainer_server")
        if server is not None:
            shaping["trainer_server"] = server["model"]
        return shaping | (shaping.pop("teacher") or {})


def parse_settings(given: dict[str, Any]) -> TrainerSettings:
    """Parses the settings. Raises `BadSettings` with the name of the first key that is unknown, missing or wrong."""
    if error := best_match(_VALIDATOR.iter_errors(given)):
        if error.validator == "anyOf":
            # The setting may also be null. What its other type demands says more than that neither fits.
            error = error.context[0]
        where = f"trainer{error.json_path.removeprefix('$')}"
        raise GpuWorkerError(
            "BadSettings",
            f"{where}: {error.message}. The activity worker lets no such settings pass, so it is of another release "
            "than this GPU worker: start both from the same release",
        )
    lr = given["optim"]["lr"]
    if lr is None:
        lr = LORA_LR if given["lora_rank"] else FULL_LR
    optim = {
        key: tuple(map(float, value)) if key == "betas" else float(value)
        for key, value in (given["optim"] | {"lr": lr}).items()
    }
    of_paper = OBJECTIVES[given["objective"]].defaults
    chosen = {key: of_paper.get(key) if value is None else value for key, value in given.items()}
    teacher = given["teacher"] and Teacher(**given["teacher"])
    server = given["trainer_server"] and TrainerServer(**given["trainer_server"])
    typed = {"optim": Optim(**optim), "teacher": teacher, "trainer_server": server}
    settings = TrainerSettings(**{**chosen, **typed})
    least = 1 + settings.clip_ratio_high
    if settings.objective != "cispo" and settings.clip_ratio_c < least:
        raise GpuWorkerError(
            "BadSettings",
            f"trainer.clip_ratio_c is {settings.clip_ratio_c:g}, below 1 + clip_ratio_high, which is {least:g}",
        )
    return settings
