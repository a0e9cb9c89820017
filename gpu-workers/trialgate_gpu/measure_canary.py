"""Measures the canary with a model. A publisher needs only the numbers, and starts without the libraries of models."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer, PreTrainedConfig

from .canary import Canary
from .errors import NotFiniteError
from .multimodal import media_tokens
from .pack import chain, make_packs
from .policy import Policy

LENGTH = 1024
TEXT = Path(__file__).with_name("pack.py")


def canary_token_ids(model_folder: Path, config: PreTrainedConfig) -> list[int]:
    """Returns `LENGTH` ids, or as many as the model's context takes: a text, then ids drawn from the whole vocabulary.

    Tokens that stand for images and the like are none of them: engines expect an image there.

    The text is source code of this package: English and Python, easy and hard to predict. Without a usable tokenizer
    all ids are drawn.
    """
    own = config.get_text_config()
    length = min(LENGTH, getattr(own, "max_position_embeddings", None) or LENGTH)
    try:
        token_ids = AutoTokenizer.from_pretrained(model_folder)(TEXT.read_text(), add_special_tokens=False)["input_ids"]
    except (OSError, ValueError, KeyError):
        token_ids = []
    drawn = np.random.default_rng(0).integers(0, own.vocab_size, LENGTH).tolist()
    media = media_tokens(config)
    return [0 if token in media else token for token in [*token_ids[: length // 2], *drawn][:length]]


def measure_canary(policy: Policy, token_ids: list[int]) -> Canary:
    """Runs one forward pass through the compute weights. Raises `NotFiniteError` unless every value is finite.

    On a CPU the pass is in float32 arithmetic: most CPUs emulate bfloat16, seven times slower (measured on AVX2).
    """
    ids = np.array(token_ids)
    trained = np.arange(len(ids)) > 0
    (pack,) = make_packs([chain(0, ids, trained, np.zeros(len(ids), np.float32), 1.0)], len(ids))
    with policy.in_float32(rounded=True) if policy.device.type == "cpu" else nullcontext():
        logprobs = policy.logprobs(pack)
    if not logprobs.isfinite().all():
        raise NotFiniteError("a log-probability of the canary is not finite")
    return Canary(token_ids, [round(p, 5) for p in logprobs.tolist()])
