"""Writes the log-probabilities that vLLM on a CPU computes in float32 for models and for weights loaded later.

    python gpu-workers/engine_logprobs.py requests.json answers.json

A request has `folders` (the model, then checkpoints to load one after the other) and `sequences` of token ids. The
answer has, for each folder, the log-probability of every token but the first of each sequence, or `error`. One process
serves all requests, because importing vLLM takes longer than loading a tiny model.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch

KV_CACHE_BYTES = 64 << 20
MAX_TOKENS = 128


def answer(folders: list[str], sequences: list[list[int]]) -> list[list[list[float]]]:
    from vllm import LLM, SamplingParams

    engine = LLM(
        folders[0],
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=MAX_TOKENS,
        max_num_seqs=4,
        max_num_batched_tokens=MAX_TOKENS,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
        distributed_executor_backend="trialgate_gpu.vllm_executor.InProcessExecutor",
        worker_extension_cls="trialgate_gpu.vllm_extension.TrialgateWorker",
    )
    # The second token of each reply is computed from cached keys and values.
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=0, detokenize=False, ignore_eos=True)
    made = []
    for number, folder in enumerate(folders):
        if number > 0:
            engine.collective_rpc("trialgate_reload_weights", kwargs={"weights_path": folder})
        prompts = [{"prompt_token_ids": ids} for ids in sequences]
        made.append([logprobs_of(reply) for reply in engine.generate(prompts, params, use_tqdm=False)])
    engine.llm_engine.engine_core.shutdown()
    return made


def logprobs_of(reply: Any) -> list[float]:
    ids, entries = reply.prompt_token_ids, reply.prompt_logprobs
    return [entry[token].logprob for token, entry in zip(ids[1:], entries[1:], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("requests", type=Path)
    parser.add_argument("answers", type=Path)
    arguments = parser.parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # vLLM 0.32's experts for AMX refuse weights in float32.
    torch.cpu._is_amx_tile_supported = lambda: False
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    answers: dict[str, dict[str, Any]] = {}
    for name, request in json.loads(arguments.requests.read_text()).items():
        try:
            answers[name] = {"logprobs": answer(request["folders"], request["sequences"])}
        except Exception as error:
            answers[name] = {"error": f"{type(error).__name__}: {error}"}
        cleanup_dist_env_and_memory()
        arguments.answers.write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
