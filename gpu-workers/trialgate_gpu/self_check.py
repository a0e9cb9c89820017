"""Checks on random tokens that a model's log-probabilities do not depend on how its sequences are packed.

Every model is checked when a run begins, in float32: packed sequences against the same sequences alone, and these
against transformers' own eager attention. A model fails if it keeps a state across tokens, or if its attention has a
part that the trainer's lacks. The packed sequences are computed in one pack, and in several with a common prefix.
The text model of a multimodal one is compared with the multimodal model on text.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from .errors import Cancelled, GpuWorkerError
from .multimodal import media_tokens, needs_towers
from .pack import Chain, chain, make_packs
from .policy import Policy
from .prefix import Prefixes

# The largest allowed difference of any token, in nats. In sound models it is below 1e-3; real errors are tenths.
TOLERANCE = 1e-2
PREFIX, BRANCH, LONG = 48, 24, 512


def check_model(policy: Policy, folder: Path) -> dict[str, float]:
    """Returns the largest differences, as metrics. Raises `BadModel` when one is above `TOLERANCE`."""
    try:
        found = differences(policy)
    except (Cancelled, GpuWorkerError):
        raise
    except (TypeError, ValueError, RuntimeError, AttributeError, AssertionError, KeyError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        why = needs_towers(policy.whole, error) or f"its forward pass fails in this trainer ({error})"
        raise _refused(policy, folder, why) from error
    if not np.isfinite(sum(found.values())):
        raise _refused(policy, folder, "its log-probabilities are not finite: its weights are damaged")
    if why := fault_in(found, TOLERANCE):
        raise _refused(policy, folder, why)
    return {f"self_check/{name}": value for name, value in found.items()}


def differences(policy: Policy) -> dict[str, float]:
    """Returns the largest differences in nats: `packed_alone` and `alone_eager`."""
    sequences = sequences_of(policy)
    with policy.in_float32():
        packed = _packed(policy, sequences)
        alone = [_packed(policy, [ids])[0] for ids in sequences]
        behind = [number for number, ids in enumerate(sequences) if len(ids) > PREFIX]
        prefixed = _packed(policy, [sequences[number] for number in behind], PREFIX, BRANCH)
        eager = _eager(policy, sequences)
    after_prefix = [alone[number][PREFIX:] for number in behind]
    return {
        "packed_alone": _largest([*packed, *prefixed], [*alone, *after_prefix]),
        "alone_eager": _largest(alone, eager),
    }


def fault_in(found: dict[str, float], tolerance: float) -> str | None:
    """Returns what is wrong with a model that has these `differences`."""
    if not found["packed_alone"] <= tolerance:
        why = "log-probabilities of packed sequences differ from those of the same sequences alone"
        return f"{why} by {found['packed_alone']:.3g} nats: tokens see other sequences"
    if not found["alone_eager"] <= tolerance:
        why = "log-probabilities differ from those of transformers' eager attention"
        return f"{why} by {found['alone_eager']:.3g} nats: its attention or its head is of another kind"
    return None


def _refused(policy: Policy, folder: Path, why: str) -> GpuWorkerError:
    kind = policy.model.config.model_type
    return GpuWorkerError("BadModel", f"model {folder} ({kind}) cannot be trained: {why}; choose another model")


def sequences_of(policy: Policy) -> list[np.ndarray]:
    """Returns branches off one prefix, a branch off a branch, a separate sequence, and one with a late branch."""
    config = policy.model.config.get_text_config()
    media = list(media_tokens(policy.whole or config))
    draw = np.random.default_rng(0)

    def tokens(count: int) -> np.ndarray:
        drawn = draw.integers(0, config.vocab_size, count)
        return np.where(np.isin(drawn, media), 0, drawn)

    prefix, branch, long = tokens(PREFIX), tokens(BRANCH), tokens(LONG)
    made = [[prefix, branch], [prefix, branch, tokens(BRANCH)], [prefix, tokens(BRANCH)], [tokens(BRANCH)]]
    made += [[prefix, long], [prefix, long[: LONG - BRANCH], tokens(BRANCH)]]
    return [np.concatenate(parts) for parts in made]


def chains_of(sequences: list[np.ndarray], untrained: int, temperature: float = 1.0) -> list[Chain]:
    """Returns chains that train every token but the first and the `untrained` ones after it."""
    return [
        chain(number, ids, np.arange(len(ids)) > untrained, np.zeros(len(ids), np.float32), temperature)
        for number, ids in enumerate(sequences)
    ]


def _packed(
    policy: Policy, sequences: list[np.ndarray], untrained: int = 0, max_tokens: int = 1 << 30
) -> list[np.ndarray]:
    prefixes = Prefixes()
    found: dict[int, np.ndarray] = {}
    for pack in make_packs(chains_of(sequences, untrained), max_tokens):
        logprobs = policy.logprobs(pack, prefixes).cpu().numpy()
        found |= {int(number): logprobs[pack.samples == number] for number in np.unique(pack.samples)}
    return [found[number] for number in range(len(sequences))]


@torch.no_grad()
def _eager(policy: Policy, sequences: list[np.ndarray]) -> list[np.ndarray]:
    made = []
    with policy.eager():
        for ids in sequences:
            tokens = torch.from_numpy(ids).to(policy.device)
            logits = policy.logits(tokens)[:-1].float()
            made.append((logits.gather(1, tokens[1:, None])[:, 0] - logits.logsumexp(1)).cpu().numpy())
    return made


def _largest(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Returns the largest difference, or NaN if any difference is NaN."""
    return float(np.max([np.abs(a - b).max() for a, b in zip(found, expected, strict=True)]))
