"""Records TRL's own GRPO losses on fixed numbers, for `gpu-workers/trialgate_gpu/objectives/trl_test.py`.

    .trialgate/bench-venv/bin/python bench/trl_losses.py gpu-workers/trialgate_gpu/objectives/trl-losses.json

Calls `GRPOTrainer._compute_loss` with given log-probabilities and writes the loss and its gradient by them. The
environment is that of `bench/trl_baseline.py --make-environment`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl import GRPOTrainer

ROWS, LENGTH = 6, 9
MAX_COMPLETION_LENGTH = 16
LOSS_TYPES = ("grpo", "dapo", "dr_grpo", "gspo", "cispo")


def inputs() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    lengths = torch.tensor([9, 7, 4, 9, 1, 6])
    old_logprobs = -3 * torch.rand(ROWS, LENGTH)
    return {
        "mask": (torch.arange(LENGTH) < lengths[:, None]).float(),
        "logprobs": old_logprobs + 0.6 * torch.randn(ROWS, LENGTH),
        "old_logprobs": old_logprobs,
        "rollout_logprobs": old_logprobs + 0.8 * torch.randn(ROWS, LENGTH),
        "advantages": torch.tensor([1.3, -0.7, 0.4, -1.5, 0.9, 0.8]),
    }


def settings(loss_type: str, delta: float | None, correction: str) -> SimpleNamespace:
    """Returns the attributes of TRL's trainer that `_compute_loss` reads."""
    kind = "grpo" if loss_type == "gspo" else loss_type
    return SimpleNamespace(
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="sequence" if loss_type == "gspo" else "token",
        beta=0.0,
        loss_type=kind,
        epsilon_low=0.2,
        epsilon_high=1.7 if kind == "cispo" else 0.28,
        args=SimpleNamespace(delta=delta, steps_per_generation=1),
        use_vllm=correction != "none",
        vllm_importance_sampling_correction=True,
        current_gradient_accumulation_steps=1,
        max_completion_length=MAX_COMPLETION_LENGTH,
        _entropy_bonus_enabled=False,
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics=defaultdict(lambda: defaultdict(list)),
    )


def measure(given: dict[str, torch.Tensor], loss_type: str, delta: float | None, correction: str) -> dict[str, Any]:
    trainer = settings(loss_type, delta, correction)
    logprobs = given["logprobs"].clone().requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None)
    # This follows `_generate_and_score_completions`, with a cap of 2.
    difference = (given["old_logprobs"] - given["rollout_logprobs"]) * given["mask"]
    ratio = (difference.sum(1, keepdim=True) if correction == "sequence" else difference).exp().clamp(max=2.0)
    ids = torch.zeros(ROWS, LENGTH, dtype=torch.long)
    loss = GRPOTrainer._compute_loss(
        trainer,
        None,
        {
            "prompt_ids": ids,
            "prompt_mask": torch.ones_like(ids),
            "completion_ids": ids,
            "completion_mask": given["mask"],
            "advantages": given["advantages"],
            "old_per_token_logps": given["old_logprobs"],
            "importance_sampling_ratio": ratio,
            "num_items_in_batch": given["mask"].sum(),
        },
    )
    loss.backward()
    return {
        "loss_type": loss_type,
        "delta": delta,
        "correction": correction,
        "loss": loss.item(),
        "gradient": (logprobs.grad * given["mask"]).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="the JSON file to write")
    given = inputs()
    cases = itertools.product(LOSS_TYPES, (None, 1.5), ("none", "token", "sequence"))
    found = {
        "trl": trl.__version__,
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "inputs": {name: tensor.tolist() for name, tensor in given.items()},
        "cases": [measure(given, *case) for case in cases if not (case[0] == "cispo" and case[1])],
    }
    parser.parse_args().target.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
