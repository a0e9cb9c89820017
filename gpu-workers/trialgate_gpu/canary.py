"""A fixed sequence with the trainer's log-probabilities.

An engine that carries the same weights gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from .errors import NotFiniteError
from .head import token_logprobs
from .pack import chain, make_packs
from .policy import Policy

TEXT = (
    "Write a Python function that adds two numbers.\ndef add(a, b):\n    return a + b\n\n"
    "The quick brown fox jumps over the lazy dog."
)
LENGTH = 32


@dataclass(frozen=True)
class Canary:
    """`logprobs[i]` is that of `token_ids[i + 1]` at temperature 1 (the first token is predicted by nothing)."""

    token_ids: list[int]
    logprobs: list[float]

    def to_json(self) -> dict[str, Any]:
        return {"token_ids": self.token_ids, "logprobs": self.logprobs}

    @staticmethod
    def from_json(given: dict[str, Any]) -> Canary:
        return Canary([int(i) for i in given["token_ids"]], [float(p) for p in given["logprobs"]])


def canary_token_ids(model_folder: Path, vocab_size: int) -> list[int]:
    """The tokenizer's ids of `TEXT`; without a usable tokenizer, ids spread over the vocabulary."""
    try:
        token_ids = AutoTokenizer.from_pretrained(model_folder)(TEXT, add_special_tokens=False)["input_ids"][:LENGTH]
    except (OSError, ValueError, KeyError):
        token_ids = []
    return token_ids if len(token_ids) >= LENGTH // 2 else [(7919 * i + 13) % vocab_size for i in range(LENGTH)]


def measure_canary(policy: Policy, token_ids: list[int]) -> Canary:
    """Runs one forward pass through the compute weights. Raises `NotFiniteError` unless every value is finite."""
    ids = np.array(token_ids)
    trained = np.arange(len(ids)) > 0
    (pack,) = make_packs([chain(0, ids, trained, np.zeros(len(ids), np.float32), 1.0)], len(ids))
    logprobs = token_logprobs(policy.infer(pack), policy.head, pack)
    if not logprobs.isfinite().all():
        raise NotFiniteError("a log-probability of the canary is not finite")
    return Canary(token_ids, [round(p, 5) for p in logprobs.tolist()])
