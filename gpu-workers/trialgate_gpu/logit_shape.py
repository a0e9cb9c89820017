"""Describes what a model does to the logits of its output embedding, from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PretrainedConfig

CAP = "final_logit_softcapping"
FACTORS = ("logit_scale", "output_multiplier", "lm_head_multiplier")
DIVISOR = "logits_scaling"
# Granite and its kin divide by `logits_scaling`. These multiply by it.
MULTIPLYING = ("hyperclovax",)


@dataclass(frozen=True)
class LogitShape:
    """The logits are `cap * tanh(scale * x / cap)`, or `scale * x` without a cap, for the output embedding's `x`."""

    scale: float = 1.0
    cap: float | None = None

    @staticmethod
    def of(config: PretrainedConfig) -> LogitShape:
        """Raises `ValueError` when a setting is no number that logits can be multiplied with."""
        scale = 1.0
        for name in FACTORS:
            scale *= _number(config, name) or 1.0
        if by := _number(config, DIVISOR):
            scale *= by if config.model_type in MULTIPLYING else 1.0 / by
        return LogitShape(scale, _number(config, CAP))

    @staticmethod
    def settings_of(config: PretrainedConfig) -> list[str]:
        """Returns the names of the settings that make the shape other than plain."""
        return [name for name in (*FACTORS, DIVISOR, CAP) if getattr(config, name, None) not in (None, 1.0)]

    def apply_(self, logits: torch.Tensor) -> torch.Tensor:
        """Turns the output embedding's values into logits, in place."""
        if self.scale != 1.0:
            logits.mul_(self.scale)
        return logits if self.cap is None else logits.div_(self.cap).tanh_().mul_(self.cap)

    def backward_(self, gradient: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Turns a gradient by the logits into that by the output embedding's values, in place.

        Where there is a cap, `logits` are overwritten too: chunks of logits are most of a pass's memory.
        """
        if self.cap is not None:
            gradient.mul_(logits.div_(self.cap).square_().neg_().add_(1.0))
        return gradient if self.scale == 1.0 else gradient.mul_(self.scale)


PLAIN = LogitShape()


def _number(config: PretrainedConfig, name: str) -> float | None:
    value = getattr(config, name, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"its setting `{name}` is {value!r}, not a number above 0")
    return float(value)
