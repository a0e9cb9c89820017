"""Shows how far the trainer is from a real vLLM on tiny mixtures of experts, with and without router replay.

vLLM samples replies, and its own hook for routed experts notes what its routers choose. The step that learns from them
is done twice from the same weights, with `enable_router_replay` and without. Its metrics say how far the trainer's
log-probabilities are from vLLM's. On a CPU vLLM 0.32 refuses `--enable-return-routed-experts`, as the table's end
shows, so the hook is set here on the model that its other runner computes.

PYTHONPATH=gpu-workers .trialgate/venv/bin/python bench/router_replay.py --out bench/results/router-replay.txt
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conftest import Run, row

ROOT = Path(__file__).resolve().parent.parent
CPU = torch.device("cpu")
VOCABULARY = 512
# Many experts, as in released mixtures: the more there are, the closer are the last that is chosen and the next one.
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 64,
    "num_local_experts": 64,
    "n_routed_experts": 64,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"mlp_only_layers": []},
    "mixtral": {},
    "gpt_oss": {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "glm4_moe": {"n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
}
SHOWN = (
    ("rollout_corr/kl", "KL (k1)"),
    ("rollout_corr/k3_kl", "KL (k3)"),
    ("rollout_corr/log_ratio_max", "largest |log ratio|"),
    ("router_replay/differing_token_fraction", "tokens that differ"),
    ("router_replay/differing_choice_fraction", "choices that differ"),
    ("router_replay/replayed_fraction", "tokens replayed"),
)


class Noted:
    """Takes what vLLM's hook gives: the experts of a layer for the tokens of a pass."""

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.passes: list[list[np.ndarray]] = []

    def capture(self, layer: int, experts: torch.Tensor) -> None:
        if not self.passes or len(self.passes[-1]) == self.layers or self._is_new(layer):
            self.passes.append([])
        missing = layer - len(self.passes[-1])
        self.passes[-1] += [np.zeros(experts.shape, np.uint8)] * missing + [experts.numpy().astype(np.uint8)]

    def _is_new(self, layer: int) -> bool:
        return layer < len(self.passes[-1])

    def take(self) -> np.ndarray:
        """Returns [tokens, layers, experts a token] of all passes since the last call."""
        found = np.concatenate([np.stack(each, 1) for each in self.passes])
        self.passes = []
        return found


def sample(folder: str, prompts: list[list[int]], tokens: int, dtype: str) -> list[dict[str, Any]]:
    """Samples one reply after the other, so that passes are in the order of tokens."""
    from vllm import LLM, SamplingParams
    from vllm.model_executor.layers.fused_moe.routed_experts_capturer import bind_routed_experts_capturer

    engine = LLM(
        folder,
        skip_tokenizer_init=True,
        dtype=dtype,
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=1,
        max_num_batched_tokens=1024,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=64 << 20,
        logprobs_mode="processed_logprobs",
        distributed_executor_backend="trialgate_gpu.vllm_executor.InProcessExecutor",
    )
    noted = Noted(SIZES["num_hidden_layers"])
    engine.apply_model(lambda model: bind_routed_experts_capturer(model, noted))
    made = []
    for seed, prompt in enumerate(prompts):
        params = SamplingParams(
            temperature=1.0, max_tokens=tokens, logprobs=0, detokenize=False, ignore_eos=True, seed=seed
        )
        noted.passes = []
        (answer,) = engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        (reply,) = answer.outputs
        rows = noted.take()[: len(prompt) + len(reply.token_ids) - 1]
        file = io.BytesIO()
        np.save(file, rows)
        logprobs = [entry[token].logprob for token, entry in zip(reply.token_ids, reply.logprobs, strict=True)]
        made.append({"reply": list(reply.token_ids), "logprobs": logprobs, "experts": file.getvalue().hex()})
    engine.llm_engine.engine_core.shutdown()
    return made


def engine_main(requests: Path, answers: Path) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    # vLLM 0.32's experts for AMX refuse weights in float32.
    torch.cpu._is_amx_tile_supported = lambda: False
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    found = {}
    for name, request in json.loads(requests.read_text()).items():
        found[name] = sample(**request)
        cleanup_dist_env_and_memory()
    answers.write_text(json.dumps(found))


def flag_main(folder: Path) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    LLM(str(folder), skip_tokenizer_init=True, enforce_eager=True, max_model_len=256, enable_return_routed_experts=True)


def try_flag(folder: Path, more: dict[str, str]) -> str:
    """Returns what vLLM says of the flag that has it return experts."""
    command = [sys.executable, str(Path(__file__)), "--flag", str(folder)]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCH_COMPILE_DISABLE": "1"} | more
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return "works"
    said = [line.strip() for line in done.stderr.splitlines() if "Error" in line or "Value error" in line]
    return said[-1] if said else done.stderr.splitlines()[-1]


def ask_engine(folder: Path, requests: dict[str, Any]) -> dict[str, Any]:
    """vLLM is in a process of its own, because it sets threads and allocators."""
    (folder / "requests.json").write_text(json.dumps(requests))
    command = [sys.executable, str(Path(__file__)), "--engine", str(folder)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "TORCH_COMPILE_DISABLE": "1"}
    environment["VLLM_CACHE_ROOT"] = str(ROOT / ".trialgate" / "cache" / "vllm")
    with (folder / "vllm.log").open("wb") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log)
    if done.returncode != 0:
        raise RuntimeError(f"vLLM failed:\n{(folder / 'vllm.log').read_text()[-3000:]}")
    return json.loads((folder / "answers.json").read_text())


def make(folder: Path, name: str, settings: dict[str, Any]) -> Path:
    """Writes a random model whose routers are undecided between some experts, as trained ones are."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **SIZES | settings))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
        if parameter.dim() == 1:
            parameter.data += 1.0
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def batch_rows(prompts: list[list[int]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for trial, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        reply = answer["reply"]
        named = {"start": 0, "end": len(prompt) + len(reply) - 1, "form": "npy"}
        more = {"routed_experts": [named | {"rows": bytes.fromhex(answer["experts"])}]}
        logprobs = [0.0] * len(prompt) + answer["logprobs"]
        made.append(row(prompt, reply, float(trial % 2), f"g{trial // 4}", f"t{trial}", logprobs=logprobs, **more))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--flag", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a prompt, and of a reply")
    parser.add_argument("--dtype", default="bfloat16", help="vLLM's")
    parser.add_argument("--out", type=Path, help="file for the table (default: only printed)")
    arguments = parser.parse_args()
    if arguments.engine:
        engine_main(arguments.engine / "requests.json", arguments.engine / "answers.json")
        return
    if arguments.flag:
        flag_main(arguments.flag)
        return
    from trialgate_gpu.device import computes_in_bfloat16
    from trialgate_gpu.progress import Progress
    from trialgate_gpu.train_step import Trainer

    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    # Four trials of each prompt.
    groups = [draw.integers(1, VOCABULARY, arguments.tokens).tolist() for _ in range(-(-arguments.trials // 4))]
    prompts = [groups[trial // 4] for trial in range(arguments.trials)]
    trials, tokens, dtype = arguments.trials, arguments.tokens, arguments.dtype
    layers, chosen, experts = (SIZES[name] for name in ("num_hidden_layers", "num_experts_per_tok", "num_experts"))
    passes = "bfloat16" if computes_in_bfloat16(CPU) else "float32, with the same bfloat16 weights"
    lines = [
        f"$ python bench/router_replay.py --trials {trials} --tokens {tokens} --dtype {dtype}",
        f"{time.strftime('%Y-%m-%d')}, vLLM in {dtype} on a CPU; the trainer's passes in {passes}",
        f"random mixtures: {layers} layers, {chosen} of {experts} experts; {trials} replies of {tokens} tokens",
    ]
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        models = {name: make(home / name / "model", name, settings) for name, settings in FAMILIES.items()}
        given = {"prompts": prompts, "tokens": arguments.tokens, "dtype": arguments.dtype}
        answers = ask_engine(home, {name: given | {"folder": str(model)} for name, model in models.items()})
        for name, model in models.items():
            run, trainer = Run(home / name, model), Trainer(CPU, 2048)
            run.home.mkdir(exist_ok=True)
            base = run.base(trainer)["checkpoint"]
            rows = batch_rows(prompts, answers[name])
            found = {
                replayed: trainer.train_step(
                    run.request(base, rows, enable_router_replay=replayed, rollout_is="none"), Progress()
                )["metrics"]
                for replayed in (False, True)
            }
            # The trainer's state is written beside the next step.
            trainer.settle()
            lines += ["", f"{name:<24}{'without':>12}{'with replay':>14}"]
            for key, label in SHOWN:
                cells = [f"{found[replayed][key]:.2g}" if key in found[replayed] else "" for replayed in (False, True)]
                lines.append(f"  {label:<22}{cells[0]:>12}{cells[1]:>14}")
        lines += ["", "LLM(enable_return_routed_experts=True) on this CPU:"]
        for more in ({}, {"VLLM_USE_V2_MODEL_RUNNER": "1"}):
            named = "".join(f"{name}={value} " for name, value in more.items()) or "as it is "
            lines.append(f"  {named.strip()}: {try_flag(next(iter(models.values())), more)}")
    text = "\n".join(lines)
    print(text)
    if arguments.out:
        arguments.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
