"""On-policy distillation: rewards each token by how much more probable it is under a teacher than under the policy.

A token's advantage gets `distillation_loss_coef` x log(teacher / policy), clamped to `loss_max_clamp` in both
directions, beside what its turn earned. Its expectation over the policy's tokens is the negative reverse KL, so that
the policy gradient descends KL(policy || teacher) in the contexts that the policy reaches, token by token (discount 0):
"On-Policy Distillation" (Thinking Machines, 2025), after MiniLLM (arXiv 2306.08543) and GKD (arXiv 2306.13649). It is
verl's `distillation_loss` with `loss_mode: k1` and `use_policy_gradient`. With the base model as the teacher it is the
KL penalty to a reference. The policy's is the rollout log-probability, so both come from engines.
"""

from __future__ import annotations

import numpy as np

from .batch import Sample
from .settings import Teacher


def log_ratios(sample: Sample) -> np.ndarray:
    """Returns log(teacher / policy) [trained tokens], NaN where the teacher was not asked."""
    trained = sample.loss_mask
    if sample.teacher_logprobs is None:
        return np.full(sample.trained_tokens, np.nan)
    return sample.teacher_logprobs[trained].astype(np.float64) - sample.rollout_logprobs[trained]


def teacher_advantages(sample: Sample, teacher: Teacher) -> np.ndarray:
    """Returns [trained tokens], 0 where the teacher was not asked."""
    most = teacher.loss_max_clamp
    return teacher.distillation_loss_coef * np.nan_to_num(log_ratios(sample).clip(-most, most))


def teacher_metrics(samples: list[Sample], teacher: Teacher) -> dict[str, float]:
    """Returns metrics. `kl` estimates (k1) KL(policy || teacher) over the tokens that the teacher was asked for."""
    found = np.concatenate([log_ratios(sample) for sample in samples])
    asked = found[~np.isnan(found)]
    if len(asked) == 0:
        return {}
    return {
        "distillation/kl": float(-asked.mean()),
        "distillation/abs_loss": float(np.abs(asked).mean()),
        "distillation/clamped_fraction": float((np.abs(asked) > teacher.loss_max_clamp).mean()),
        "distillation/tokens": len(asked),
    }
