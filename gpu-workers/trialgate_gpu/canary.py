"""Describes the canary: a fixed sequence with the trainer's log-probabilities. `measure_canary.py` measures it.

An engine with the same weights gives the same numbers except for rounding. Trainer and engine compute in bfloat16 with
different kernels, so a few tokens in a thousand differ by a tenth of a nat and more, while the mean over all tokens
hardly moves. A wrong tensor or a layer of another version moves the mean (`bench/canary.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Canary:
    """`logprobs[i]` belongs to `token_ids[i + 1]`, at temperature 1. Nothing predicts the first token."""

    token_ids: list[int]
    logprobs: list[float]

    def to_json(self) -> dict[str, Any]:
        return {"token_ids": self.token_ids, "logprobs": self.logprobs}

    @staticmethod
    def from_json(given: dict[str, Any]) -> Canary:
        return Canary([int(i) for i in given["token_ids"]], [float(p) for p in given["logprobs"]])
