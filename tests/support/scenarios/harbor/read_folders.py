"""Prints what Harbor's own code reads in folders, as JSON: `read_folders.py rewards|tasks FOLDER...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harbor.models.task.task import Task
from harbor.verifier.verifier import Verifier


def rewards(folder: Path) -> dict[str, Any] | None:
    """Returns the rewards of the folder that a verifier wrote, in the order of files of `Verifier.verify`."""
    paths = SimpleNamespace(reward_json_path=folder / "reward.json", reward_text_path=folder / "reward.txt")
    verifier = Verifier.__new__(Verifier)
    verifier.trial_paths = paths
    try:
        if paths.reward_json_path.exists():
            return verifier._parse_reward_json()
        return verifier._parse_reward_text() if paths.reward_text_path.exists() else None
    except Exception:
        return None


def task(folder: Path) -> dict[str, Any]:
    found = Task(folder)
    environment = found.config.environment
    return {
        "name": found.name,
        "instruction": found.instruction,
        "verifier_seconds": found.config.verifier.timeout_sec,
        "verifier_env": found.config.verifier.env,
        "cpus": environment.cpus,
        "memory_mb": environment.memory_mb,
        "storage_mb": environment.storage_mb,
    }


if __name__ == "__main__":
    read = {"rewards": rewards, "tasks": task}[sys.argv[1]]
    print(json.dumps([read(Path(each)) for each in sys.argv[2:]]))
