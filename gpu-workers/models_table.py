"""Prints the tables of docs/models.md, as the trainer's own check of small random models finds them.

    python gpu-workers/models_table.py [--write]

`models_table_test.py` compares them with the page.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoConfig

from trialgate_gpu.examine_model import TOLERANCE, Finding, examine

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
BEGIN, END = "<!-- {0}: models_table.py writes this table -->\n", "<!-- {0}: end -->"


class Family(NamedTuple):
    """`engine` says what real vLLM on a CPU gave for a small model (`families_real_test.py`)."""

    released: str
    engine: str = ""
    settings: dict = {}  # noqa: RUF012


MULTIPLIERS = {"logits_scaling": 8.0, "embedding_multiplier": 12.0, "residual_multiplier": 0.22}
CONVOLUTIONS = {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8}
CONVERTED = ", converted to bfloat16"
SAME = "same, before and after a publication"
TRAINED = {
    "llama": Family("Llama 2 and 3, SmolLM2, Yi", "same (the bundled model)"),
    "qwen2": Family("Qwen2, Qwen2.5"),
    "qwen3": Family("Qwen3 0.6B to 32B"),
    "qwen3_moe": Family("Qwen3 30B-A3B, 235B-A22B", SAME),
    "mistral": Family("Mistral 7B"),
    "ministral3": Family("the language model of Ministral 3 alone"),
    "mistral3": Family("Mistral Small 3.1 and 3.2, Ministral 3 in bfloat16: the text model, with the tower kept"),
    "mixtral": Family("Mixtral 8x7B, 8x22B", SAME),
    "gemma": Family("Gemma 2B, 7B"),
    "gemma2": Family(
        "Gemma 2 2B, 9B, 27B", "differs by 0.2 nats: vLLM 0.32's attention for CPUs caps its logits otherwise"
    ),
    "gemma3_text": Family("Gemma 3 270M, 1B", SAME),
    "gemma3": Family("Gemma 3 4B to 27B: the text model, with the tower kept"),
    "gemma4": Family(
        "Gemma 4: the text model, with the towers kept",
        settings={"vision_config": {}, "audio_config": {}, "text_config": {"final_logit_softcapping": 30.0}},
    ),
    "gemma4_text": Family("the language model of Gemma 4 alone", settings={"final_logit_softcapping": 30.0}),
    "gpt_oss": Family(
        f"gpt-oss 20b, 120b{CONVERTED}",
        "same before a publication; vLLM 0.32 does not load the experts again, so the canary refuses it",
    ),
    "deepseek_v3": Family(f"DeepSeek V3, R1{CONVERTED}", "differs by 0.14 nats: vLLM 0.32's latent attention for CPUs"),
    "glm": Family("GLM-4 9B (chat)"),
    "glm4": Family("GLM-4 0414 9B, 32B"),
    "glm4_moe": Family("GLM-4.5, GLM-4.6", SAME),
    "granite": Family("Granite 3 2B, 8B", SAME, MULTIPLIERS),
    "granitemoe": Family("Granite 3 1B-A400M, 3B-A800M", SAME, MULTIPLIERS),
    "cohere": Family("Command R", SAME),
    "cohere2": Family(
        "Command R7B, Command A", f"{SAME}, within its window; beyond it vLLM's window has one token more"
    ),
    "olmo2": Family("OLMo 2"),
    "olmo3": Family("Olmo 3"),
    "phi": Family("Phi-1.5, Phi-2"),
    "phi3": Family("Phi-3 and Phi-4 without `longrope`"),
    "smollm3": Family("SmolLM3 3B"),
    "ernie4_5": Family("ERNIE 4.5 0.3B"),
    "exaone4": Family("EXAONE 4.0"),
    "seed_oss": Family("Seed-OSS 36B"),
    "minimax_m2": Family(f"MiniMax-M2{CONVERTED}"),
    "gpt2": Family("GPT-2"),
    "starcoder2": Family("StarCoder2"),
    "hyperclovax": Family("HyperCLOVA X SEED", SAME, {"logits_scaling": 0.125}),
    "minicpm3": Family("MiniCPM3 4B"),
    "nanochat": Family("nanochat", SAME),
    "lfm2": Family(
        "LFM2 350M, 700M, 1.2B", "differs by 0.03 nats, before a publication too; we do not know why", CONVOLUTIONS
    ),
    "lfm2_moe": Family("LFM2 8B-A1B", settings=CONVOLUTIONS),
    "qwen3_next": Family(
        "Qwen3-Next 80B-A3B", "not run in float32: vLLM 0.32's gated delta nets for CPUs take bfloat16 alone"
    ),
    "qwen3_5_text": Family(
        "the language model of Qwen3.5 alone",
        "not run: vLLM 0.32's code for it needs torchvision, which our installation does not have",
    ),
    "qwen3_5": Family("Qwen3.5: the text model, with the tower kept"),
    "qwen3_5_moe": Family("Qwen3.5 mixtures: the text model, with the tower kept"),
    "qwen3_5_moe_text": Family("the language model of a Qwen3.5 mixture alone"),
    "olmo_hybrid": Family("Olmo Hybrid 7B"),
    "kimi_linear": Family("Kimi Linear 48B-A3B"),
    "mamba2": Family("Mamba-2, Codestral Mamba"),
    "bamba": Family("Bamba 9B", settings={"attn_layer_indices": [9, 18, 27]}),
    "granitemoehybrid": Family(
        "Granite 4 H",
        SAME,
        MULTIPLIERS | {"layer_types": [*["linear_attention"] * 5, "full_attention", *["linear_attention"] * 26]},
    ),
    "nemotron_h": Family("Nemotron-H, Nemotron 3 Nano"),
    "falcon_h1": Family("Falcon-H1", settings={"lm_head_multiplier": 0.04}),
}
REFUSED = {
    "qwen2_5_vl": Family("Qwen2.5-VL"),
    "qwen3_vl": Family("Qwen3-VL"),
    "glm4v": Family("GLM-4.1V"),
    "mamba": Family("Mamba"),
    "jamba": Family("Jamba"),
    "minimax": Family("MiniMax-Text-01"),
    "llama4_text": Family("the language model of Llama 4 alone"),
    "llama4": Family("Llama 4"),
    "deepseek_v32": Family("DeepSeek V3.2"),
    "deepseek_v4": Family("DeepSeek V4"),
    "glm_moe_dsa": Family("GLM-5"),
    "cohere2_vision": Family("Command A Vision"),
    "bloom": Family("BLOOM"),
    "falcon": Family("Falcon"),
}
COLUMNS = (
    "family",
    "released models, for example",
    "layers",
    "experts",
    "logits",
    "packed, alone, transformers",
    "gradient",
    "FSDP2 on one rank",
    "LoRA",
    "vLLM has it",
    "log-probabilities of vLLM on a CPU",
)


def found_of(kind: str, **settings) -> Finding:
    with tempfile.TemporaryDirectory() as folder:
        AutoConfig.for_model(kind, **settings).save_pretrained(folder)
        return examine(Path(folder), "MODEL")


def trained_table() -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for kind, family in TRAINED.items():
        found = found_of(kind, **family.settings)
        lines.append(
            f"| {' | '.join([f'`{kind}`', family.released, *_columns(kind, found), family.engine or 'not tried'])} |"
        )
    return "\n".join(lines) + "\n"


def _columns(kind: str, found: Finding) -> list[str]:
    deviations = found.deviations
    if found.reason is not None or deviations is None:
        raise ValueError(f"{kind}: {found.reason or found.not_run}")
    kinds = [f"{kind.removesuffix('_attention')}" for kind in found.attention]
    shape = [] if found.logit_scale == 1.0 else ["scaled"]
    shape += [] if found.logit_cap is None else ["capped"]
    targets = "none" if found.lora is None else "all linear layers" if found.lora == ["all-linear"] else "some"
    adapted = deviations.lora_gradient is None or deviations.lora_gradient <= TOLERANCE
    return [
        ", ".join(kinds),
        "no" if not found.experts else "replayed" if found.replays else "yes",
        " and ".join(shape) or "plain",
        "equal",
        "equal",
        "equal" if deviations.ranks_gradient is not None and deviations.ranks_gradient <= TOLERANCE else "no",
        targets if adapted else "differs",
        {True: "yes", False: "not of its own", None: "not installed"}[found.vllm],
    ]


def refused_table() -> str:
    lines = ["| family | released models, for example | why it is refused |", "|---|---|---|"]
    for kind, family in REFUSED.items():
        reason = found_of(kind, **family.settings).reason
        if reason is None:
            raise ValueError(f"{kind} can be trained now")
        why = reason.split("cannot be trained: ", 1)[1].removesuffix("; choose another model")
        # Its size is rounded otherwise on other machines.
        why = re.sub(r" by [\d.e-]+ nats", "", why)
        lines.append(f"| `{kind}` | {family.released} | {why} |")
    return "\n".join(lines) + "\n"


TABLES = {"trained": trained_table, "refused": refused_table}


def on_page(name: str) -> str:
    """Returns a table as docs/models.md has it."""
    return PAGE.read_text().split(BEGIN.format(name))[1].split(END.format(name))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put them into docs/models.md")
    write = parser.parse_args().write
    torch.set_num_threads(1)
    for name, make in TABLES.items():
        table = make()
        if write:
            begin, end = BEGIN.format(name), END.format(name)
            PAGE.write_text(PAGE.read_text().replace(begin + on_page(name) + end, begin + table + end))
        else:
            print(table)


if __name__ == "__main__":
    main()
