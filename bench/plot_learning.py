"""Draws bench/results/learning.png: reward by sample and by minute, Trialgate's seeds beside TRL's GRPOTrainer.

.trialgate/bench-venv/bin/python bench/plot_learning.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).resolve().parent / "results"
SAMPLES_A_STEP = 64
OURS, THEIRS = "#1f6feb", "#8b949e"


def lines_of(name: str) -> list[dict[str, Any]]:
    file = RESULTS / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main() -> None:
    seeds: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in lines_of("learning.jsonl"):
        if "iteration" in row:
            seeds[row["seed"]].append(row)
    theirs = [row for row in lines_of("learning-trl.jsonl") if "step" in row]
    figure, (by_sample, by_minute) = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for seed, rows in sorted(seeds.items()):
        label = f"Trialgate ({len(seeds)} run{'s' if len(seeds) > 1 else ''})" if seed == 0 else None
        rewards = [row["reward"] for row in rows]
        by_sample.plot(
            [SAMPLES_A_STEP * (i + 1) for i in range(len(rows))], rewards, color=OURS, alpha=0.75, label=label
        )
        by_minute.plot([row["minutes"] for row in rows], rewards, color=OURS, alpha=0.75, label=label)
    if theirs:
        minutes, total = [], 0.0
        for row in theirs:
            total += row["seconds"] / 60
            minutes.append(total)
        rewards = [row["reward_mean"] for row in theirs]
        by_sample.plot(
            [SAMPLES_A_STEP * row["step"] for row in theirs], rewards, color=THEIRS, marker="o", label="TRL GRPOTrainer"
        )
        by_minute.plot(minutes, rewards, color=THEIRS, marker="o", label="TRL GRPOTrainer")
    by_sample.set(xlabel="samples", ylabel="mean reward of the batch", ylim=(0, 1))
    by_minute.set(xlabel="minutes (sampling and training, 2 cores)")
    for axes in (by_sample, by_minute):
        axes.grid(alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    by_sample.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(RESULTS / "learning.png", dpi=150)


if __name__ == "__main__":
    main()
