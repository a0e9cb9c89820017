"""Compares the tokens that a train step computes with the distinct ones, for groups of one prompt.

    PYTHONPATH=gpu-workers .trialgate/venv/bin/python bench/packs.py --out bench/results/packs.txt

A group is 8 trials of 5 turns, each 64 observed and 64 sampled tokens; the prompts begin with the same 128 tokens. The
budgets are the defaults of `pack_tokens` on a CPU and on a GPU. Needs no model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from trialgate_gpu.pack import Chain, chain, make_packs


def group(prompt: int, seed: int) -> list[Chain]:
    draw = np.random.default_rng(seed)
    start = np.concatenate([np.arange(128), draw.integers(0, 50_000, prompt - 128)])
    mask = np.concatenate([np.zeros(prompt), np.tile(np.repeat([0, 1], 64), 5)]).astype(bool)
    made = []
    for trial_index in range(8):
        ids = np.concatenate([start, draw.integers(0, 50_000, 640)])
        made.append(chain(8 * seed + trial_index, ids, mask, np.zeros(len(ids), np.float32), 1.0))
    return made


def measure(prompt: int, groups: int, budget: int) -> tuple[int, int, int]:
    """Returns (tokens computed, distinct tokens, packs)."""
    chains = [each for seed in range(groups) for each in group(prompt, seed)]
    packs = list(make_packs(chains, budget))
    prefixes = {id(p.prefix): len(p.prefix) for p in packs if getattr(p, "prefix", None) is not None}
    distinct = {hash(c.inputs[: n + 1].tobytes()) for c in chains for n in range(len(c.inputs))}
    return (
        sum(len(p.token_ids) for p in packs) + sum(prefixes.values()),
        len(distinct),
        len(packs),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the table (default: only printed)")
    arguments = parser.parse_args()
    lines = ["prompt  groups  budget  packs  computed  distinct  computed/distinct"]
    for prompt in (512, 2048, 8192):
        for groups, budget in ((1, 2048), (1, 16384), (4, 2048), (4, 16384)):
            computed, distinct, packs = measure(prompt, groups, budget)
            lines.append(
                f"{prompt:6}  {groups:6}  {budget:6}  {packs:5}  {computed:8}  {distinct:8}  "
                f"{computed / distinct:17.3f}"
            )
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(f"$ python bench/packs.py\n\n{text}")


if __name__ == "__main__":
    main()
