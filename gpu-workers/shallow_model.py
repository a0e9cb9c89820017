"""Cuts a model down to its first layers, so that engines in tests answer sooner.

python gpu-workers/shallow_model.py .trialgate/models/SmolLM2-135M-Instruct shallow --layers 4
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def cut(source: Path, target: Path, layers: int) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("config.json", WEIGHTS))
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
    kept = {name: tensor for name, tensor in load_file(source / WEIGHTS).items() if _layer(name) < layers}
    save_file(kept, target / WEIGHTS, metadata={"format": "pt"})


def _layer(name: str) -> int:
    found = re.search(r"\.layers\.(\d+)\.", name)
    return int(found[1]) if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder of the whole model")
    parser.add_argument("target", type=Path, help="folder to make")
    parser.add_argument("--layers", type=int, required=True, help="how many to keep, from the first")
    given = parser.parse_args()
    cut(given.source, given.target, given.layers)


if __name__ == "__main__":
    main()
