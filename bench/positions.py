"""Compares the trainer's log-probabilities with transformers' own, by position, on the small real model in float32.

PYTHONPATH=gpu-workers .trialgate/venv/bin/python bench/positions.py --out bench/results/positions.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from trialgate_gpu.head import token_logprobs
from trialgate_gpu.pack import chain, make_packs
from trialgate_gpu.policy import Policy

ROOT = Path(__file__).resolve().parent.parent
BANDS = ((0, 64), (64, 512), (512, 2048), (2048, 4096))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model",
        type=Path,
        default=ROOT / ".trialgate" / "models" / "SmolLM2-135M-Instruct",
    )
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--out", type=Path, help="file for the table (default: only printed)")
    arguments = parser.parse_args()
    policy = Policy(arguments.model, torch.device("cpu"))
    ids = np.random.default_rng(0).integers(0, policy.model.config.vocab_size, arguments.tokens)
    trained = np.arange(len(ids)) > 0
    (pack,) = make_packs([chain(0, ids, trained, np.zeros(len(ids), np.float32), 1.0)], len(ids))
    with policy.in_float32():
        found = token_logprobs(policy.infer(pack), policy.head, pack)
    del policy
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    with torch.no_grad():
        hidden = model.model(torch.from_numpy(ids)[None]).last_hidden_state[0, :-1]
        expected = torch.cat(
            [
                model.lm_head(piece).log_softmax(-1).gather(1, torch.from_numpy(targets)[:, None])[:, 0]
                for piece, targets in zip(
                    hidden.split(512),
                    np.split(ids[1:], range(512, len(hidden), 512)),
                    strict=True,
                )
            ]
        )
    difference = (found - expected).abs()
    lines = [
        f"{arguments.model.name}, float32, {len(ids)} random tokens; |difference| in nats",
        "positions   mean      max",
    ]
    for low, high in BANDS:
        part = difference[low:high]
        if len(part):
            lines.append(f"{low:>4}-{high:<5}  {part.mean():.2e}  {part.max():.2e}")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(f"$ python bench/positions.py --tokens {arguments.tokens}\n\n{text}")


if __name__ == "__main__":
    main()
