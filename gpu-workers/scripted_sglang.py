"""Serves SGLang's control routes with scripted faults on a Unix socket.

`tests/support/fakes/sglang/README.md` says where its answers are from.
"""

from __future__ import annotations

import asyncio

from scripted_engine import ScriptedEngine

# A prompt must be this much shorter than the context.
RESERVED = 6


class ScriptedSglang(ScriptedEngine):
    """`hf_overrides` stands for vLLM's option for the head's dtype, here `--enable-fp32-lm-head`."""

    async def answer(self, route: str, body: dict) -> tuple[int, dict]:
        if route == "/ready":
            return (503 if self.paused else 200), {}
        if route == "/generate":
            return self.generate(body)
        if route == "/update_weights_from_disk":
            return await self.update(body)
        if route.endswith("_lora_adapter"):
            return self.change_adapter(route, body)
        if route == "/update_weight_version":
            if body.get("abort_all_requests", True):
                return 500, {"error": "the publisher ended the requests"}
            self.weight_version = body["new_version"]
            self.weight_versions.append(self.weight_version)
        elif route == "/pause_generation":
            self.paused = body["mode"] == "retract"
            self.pauses += self.paused
        elif route == "/continue_generation":
            self.paused = False
        answers = {
            "/model_info": {"weight_version": self.weight_version},
            "/server_info": {
                "enable_fp32_lm_head": self.hf_overrides.get("head_dtype") == "float32",
                "enable_lora": self.max_lora_rank is not None,
                "max_lora_rank": self.max_lora_rank,
            },
            "/v1/models": {
                "data": [{"id": "policy", "max_model_len": self.max_model_len + RESERVED}, *self.adapter_cards()]
            },
            "/weights_checker": {"ranks": [{"checksums": {"tensor": self.weights}}]},
            "/update_weight_version": {},
            "/pause_generation": {},
            "/continue_generation": {},
        }
        return (200, answers[route]) if route in answers else (404, {"detail": "Not Found"})

    async def update(self, body: dict) -> tuple[int, dict]:
        if not self.paused:
            await asyncio.sleep(60)
        status, _ = await self.reload(body["model_path"])
        done = status == 200
        return (200 if done else 400), {"success": done, "message": "", "num_paused_requests": 0}

    def generate(self, body: dict) -> tuple[int, dict]:
        first, *rest = body["input_ids"]
        if len(body["input_ids"]) >= self.max_model_len:
            return 400, {"error": {"message": "the prompt is longer than the model's context"}}
        seen = self.answers_of(body.get("lora_path"))
        entries = [[p, t, None] for t, p in zip(rest, seen[: len(rest)], strict=True)]
        return 200, {
            "text": "",
            "output_ids": [0],
            "meta_info": {"input_token_logprobs": [[None, first, None], *entries]},
        }
