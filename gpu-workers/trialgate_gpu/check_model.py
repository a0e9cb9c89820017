"""Checks that a model can be trained with these settings, without its weights:

python -m trialgate_gpu.check_model FOLDER '{"lora_rank": 8, "lora_alpha": 32, "target_modules": ["q_proj"], "seed": 0}'

When it cannot, the last line of its output says why, and it ends with exit code 3.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from .errors import GpuWorkerError
from .lora import Lora, add_adapter
from .supported import require_supported

REFUSED = 3


def check_model(folder: Path, settings: dict[str, object]) -> None:
    """Raises `BadModel` when the trainer does not support the model, `BadSettings` when it lacks a named layer."""
    try:
        # The trainer runs no code of a model. Without this, transformers asks a person.
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise GpuWorkerError("BadModel", f"model {folder} cannot be trained: {reason}; choose another model") from error
    require_supported(config, folder)
    if lora := Lora.from_settings(settings):
        add_adapter(model, lora)


def main() -> None:
    try:
        check_model(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except GpuWorkerError as error:
        print(error)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
