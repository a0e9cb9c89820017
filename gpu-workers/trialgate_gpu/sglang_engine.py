"""Calls the control routes of SGLang."""

from __future__ import annotations

from typing import Any

from .engine import (
    DEFAULT_BROADCAST,
    WORK_SECONDS,
    Engine,
    EngineError,
    WeightBroadcast,
    cannot_receive,
    head_dtype_differs,
    without_lora,
)
from .manifest import digest


class SglangEngine(Engine):
    """One SGLang replica."""

    async def weight_version(self) -> str:
        return str((await self._call("GET", "/model_info")).json()["weight_version"])

    async def set_weight_version(self, weight_version: str) -> None:
        # Unless told not to, the route ends all requests.
        body = {"new_version": weight_version, "abort_all_requests": False}
        await self._call("POST", "/update_weight_version", json=body)

    async def is_paused(self) -> bool:
        return (await self._ask("GET", "/ready")).status_code == 503

    async def pause(self) -> None:
        # Requests give up their KV, so that it can be dropped, and compute it again with the new weights.
        await self._call("POST", "/pause_generation", json={"mode": "retract"})

    async def resume(self) -> None:
        await self._call("POST", "/continue_generation", json={})

    async def require(self, head_dtype: str, broadcast: WeightBroadcast = DEFAULT_BROADCAST) -> None:
        if broadcast.type in ("gloo", "nccl"):
            raise cannot_receive(self.url, broadcast.type, "is SGLang, which loads from disk", "use vLLM")
        info = (await self._call("GET", "/server_info")).json()
        found = "float32" if info.get("enable_fp32_lm_head") else "model"
        if found != head_dtype:
            raise head_dtype_differs(self.url, found, head_dtype, "SGLang", "--enable-fp32-lm-head")

    async def reload(self, checkpoint: str) -> None:
        body = {"model_path": checkpoint, "flush_cache": True}
        answer = (await self._call("POST", "/update_weights_from_disk", json=body, timeout=WORK_SECONDS)).json()
        if not answer["success"]:
            raise EngineError(f"/update_weights_from_disk: {answer['message']}")

    async def require_adapters(self, rank: int) -> None:
        info = (await self._call("GET", "/server_info")).json()
        how = f"start SGLang with --enable-lora --max-lora-rank {rank} --lora-target-modules all"
        if not info.get("enable_lora"):
            raise without_lora(self.url, "was started without LoRA", how)
        if (most := info.get("max_lora_rank")) is not None and most < rank:
            raise without_lora(self.url, f"takes adapters of rank {most} at most, not {rank}", how)

    async def adapters(self) -> dict[str, str]:
        models = (await self._call("GET", "/v1/models")).json()["data"]
        return {model["id"]: model["root"] for model in models if model.get("parent") is not None}

    async def load_adapter(self, name: str, folder: str) -> None:
        body = {"lora_name": name, "lora_path": folder}
        await self._call("POST", "/load_lora_adapter", json=body, timeout=WORK_SECONDS)

    async def unload_adapter(self, name: str, seconds: float = WORK_SECONDS) -> None:
        # It waits for the calls under way that use it.
        await self._call("POST", "/unload_lora_adapter", json={"lora_name": name}, timeout=seconds)

    async def checksum(self) -> str:
        response = await self._call("POST", "/weights_checker", json={"action": "checksum"}, timeout=WORK_SECONDS)
        return digest([rank["checksums"] for rank in response.json()["ranks"]])

    async def prompt_logprobs(
        self, token_ids: list[int], weight_version: str, *, adapter: str | None = None
    ) -> list[float]:
        models = (await self._call("GET", "/v1/models")).json()["data"]
        # It refuses a prompt within 6 tokens of its context.
        token_ids = token_ids[: int(models[0]["max_model_len"]) - 7]
        body: dict[str, Any] = {
            "input_ids": token_ids,
            "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "cache_salt": weight_version,
        } | ({"lora_path": adapter} if adapter else {})
        meta = (await self._call("POST", "/generate", json=body, timeout=WORK_SECONDS)).json()["meta_info"]
        entries = meta["input_token_logprobs"][1:]
        return [float(logprob) for logprob, _, _ in entries]
