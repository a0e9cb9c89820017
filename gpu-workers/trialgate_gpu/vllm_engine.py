"""Calls the control routes of vLLM (VLLM_SERVER_DEV_MODE=1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from .engine import (
    DEFAULT_BROADCAST,
    WORK_SECONDS,
    Engine,
    EngineError,
    WeightBroadcast,
    cannot_receive,
    head_dtype_differs,
    is_relayed,
    without_lora,
)
from .errors import GpuWorkerError
from .manifest import digest
from .weight_sender import PATIENCE, GlooSender, NcclSender, WeightSender

log = logging.getLogger("trialgate.gpu")

HEAD_OVERRIDE = '\'{"head_dtype": "float32"}\''
EXTENSION = "trialgate_gpu.vllm_extension.TrialgateWorker"
SENDERS: dict[str, type[GlooSender | NcclSender]] = {"gloo": GlooSender, "nccl": NcclSender}
# The longest time that an engine takes to notice that its sender is gone. In a call of NCCL it may never notice.
NOTICE_SECONDS = 60.0
# The values that vLLM takes for --max-lora-rank (vllm/config/lora.py).
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def cache_salt(weight_version: str) -> str:
    """Returns the salt of the canary's prompt. vLLM refuses `@` and `/`; run ids have no `:`,
    so the salts of two weight versions differ.

    The gateway derives another salt from the same weight version (`gateway/engines/vllm/engine-body.ts`), because it
    must encode any text that an engine may have there. The two need not agree: the canary only must not reuse what
    was computed under an earlier weight version.
    """
    return weight_version.replace("@", ":")


class VllmEngine(Engine):
    """One vLLM replica."""

    _reload_method: str | None = None
    _sender: type[GlooSender | NcclSender] | None = None
    _broadcast = DEFAULT_BROADCAST

    def __init__(self, url: str, http: httpx.AsyncClient | None = None) -> None:
        super().__init__(url, http)
        self._starting: dict[str, asyncio.Future[GlooSender | NcclSender]] = {}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for unused in self._starting.values():
            unused.add_done_callback(lambda done: done.exception() or done.result().stop())
        await super().__aexit__(kind, error, trace)

    def _without_route(self, path: str) -> GpuWorkerError | None:
        if path.startswith("/v1"):
            return None
        what = f"engine {self.url} has no {path}: start vLLM with VLLM_SERVER_DEV_MODE=1"
        return GpuWorkerError("EngineWithoutDevRoutes", what)

    async def weight_version(self) -> str:
        return str((await self._call("GET", "/weight_info")).json()["weight_version"])

    async def set_weight_version(self, weight_version: str) -> None:
        await self._call("POST", "/update_weight_version", json={"new_version": weight_version})

    async def is_paused(self) -> bool:
        return bool((await self._call("GET", "/is_paused")).json()["is_paused"])

    async def pause(self) -> None:
        await self._call("POST", "/pause", params={"mode": "keep", "clear_cache": "false"})

    async def resume(self) -> None:
        await self._call("POST", "/resume")

    async def config(self) -> dict[str, Any]:
        """Returns the configuration that vLLM was started with (its `VllmConfig`)."""
        return (await self._call("GET", "/server_info", params={"config_format": "json"})).json()["vllm_config"]

    async def require(self, head_dtype: str, broadcast: WeightBroadcast = DEFAULT_BROADCAST) -> None:
        config = await self.config()
        overrides = (config.get("model_config") or {}).get("hf_overrides") or {}
        found = "float32" if overrides.get("head_dtype") == "float32" else "model"
        if found != head_dtype:
            raise head_dtype_differs(self.url, found, head_dtype, "vLLM", "--hf-overrides " + HEAD_OVERRIDE)
        self._reload_method = self.reload_method(config)
        self._broadcast, self._sender = broadcast, self._sender_for(broadcast.type, config)

    def _sender_for(self, kind: str, config: dict[str, Any]) -> type[GlooSender | NcclSender] | None:
        """Returns None for an engine that loads from disk."""
        found = (config.get("weight_transfer_config") or {}).get("backend")
        # Through a relay the engine cannot reach this process.
        behind_relay = is_relayed(self.url)
        if kind == "auto":
            return GlooSender if found == "gloo" and not behind_relay else None
        if kind == "filesystem":
            return None
        if behind_relay:
            raise cannot_receive(self.url, kind, "is behind a relay, from where it cannot reach the trainer", "move it")
        if found != kind:
            why = f"was started to receive weights by {found}" if found else "was started to load weights from disk"
            extension = f" --worker-extension-cls {EXTENSION}" if kind == "gloo" else ""
            how = f'start vLLM with --weight-transfer-config \'{{"backend": "{kind}"}}\'{extension}'
            raise cannot_receive(self.url, kind, why, how)
        return SENDERS[kind]

    def reload_method(self, config: dict[str, Any]) -> str:
        """Returns the name of the worker's method that loads a whole checkpoint. An unknown name would end vLLM.

        Raises `EngineWithoutExtension` for a CPU engine without our extension (see vllm_extension.py).
        """
        if config["parallel_config"].get("worker_extension_cls") == EXTENSION:
            return "trialgate_reload_weights"
        if config["device_config"].get("device") == "cpu":
            what = f"engine {self.url} runs on a CPU, where tied output heads and experts are wrong after a reload"
            how = f"start vLLM with --worker-extension-cls {EXTENSION} and PYTHONPATH set to the folder gpu-workers"
            raise GpuWorkerError("EngineWithoutExtension", f"{what}: {how}")
        return "reload_weights"

    async def prepare_reload(self, checkpoint: str) -> None:
        """Starts what sends the checkpoint. `reload` says why it failed, if it did."""
        if self._sender:
            await asyncio.wait((await self._start_sender(checkpoint, self._sender),))

    async def _start_sender(
        self, checkpoint: str, kind: type[GlooSender | NcclSender]
    ) -> asyncio.Future[GlooSender | NcclSender]:
        if checkpoint not in self._starting:
            workers = int((await self._call("GET", "/get_world_size")).json()["world_size"])
            host = urlsplit(self.url).hostname or "localhost"
            patience = min(PATIENCE, timedelta(seconds=self._broadcast.timeout))
            start = asyncio.to_thread(kind, checkpoint, host, workers, patience)
            self._starting[checkpoint] = asyncio.ensure_future(start)
        return self._starting[checkpoint]

    async def reload(self, checkpoint: str) -> None:
        """Loads a checkpoint, from this process or from disk.

        If nobody chose between them, the disk is also asked when a transfer failed: an engine that reads the same disk
        then has its weights.
        """
        if self._sender:
            try:
                await self._receive(checkpoint, self._sender)
            except EngineError as error:
                await self._end_transfer()
                if self._broadcast.type != "auto":
                    raise
                log.warning("engine %s did not receive its weights (%s): loading them from disk", self.url, error)
                await self._load_from_disk(checkpoint)
        else:
            await self._load_from_disk(checkpoint)
        await self._call("POST", "/reset_prefix_cache")

    async def _receive(self, checkpoint: str, kind: type[GlooSender | NcclSender]) -> None:
        """Sends the weights in vLLM's four phases: init, start, update, finish."""
        seconds = self._broadcast.timeout
        starting = await self._start_sender(checkpoint, kind)
        try:
            sender = await asyncio.shield(starting)
        except Exception as error:  # Such as a damaged file, or a machine without a GPU.
            raise EngineError(f"its weights cannot be sent: {error}") from error
        del self._starting[checkpoint]
        try:
            await self._while_running(sender, sender.join, "/init_weight_transfer_engine", "init_info")
            await self._start_update(seconds)
            await self._while_running(sender, sender.send, "/update_weights", "update_info")
            await self._call("POST", "/finish_weight_update", json={}, timeout=seconds)
            await self._call("POST", "/shutdown_weight_transfer_engine", timeout=seconds)
        finally:
            sender.stop()

    async def _start_update(self, seconds: float) -> None:
        try:
            await self._call("POST", "/start_weight_update", timeout=seconds)
        except EngineError as refusal:
            # A publisher that was killed or cancelled has begun an update. Whatever the engine makes of it is replaced.
            try:
                await self._call("POST", "/finish_weight_update", json={}, timeout=seconds)
            except EngineError:
                raise refusal from None
            await self._call("POST", "/start_weight_update", timeout=seconds)

    async def _while_running(self, sender: WeightSender, work: Callable[[], None], path: str, field: str) -> None:
        """Asks the engine, which answers when both sides have done their part."""
        try:
            body = {field: await asyncio.to_thread(getattr, sender, field)}
        except Exception as error:  # Such as a damaged file.
            raise EngineError(f"its weights cannot be sent: {error}") from error
        answer = asyncio.ensure_future(self._call("POST", path, json=body, timeout=self._broadcast.timeout))
        sent = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.wait((answer, sent), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            if not (answer.done() and sent.done()):
                sender.stop()
                await asyncio.wait((answer,), timeout=NOTICE_SECONDS)
                answer.cancel()
                # Gloo's thread ends when the engine leaves the group, which `_end_transfer` asks for.
                sent.add_done_callback(lambda done: done.exception())
        if sent.done() and (error := sent.exception()):
            told = answer.exception() if answer.done() and not answer.cancelled() else None
            raise EngineError(f"{path}: {told or f'{type(error).__name__} {error}'}") from error
        await answer

    async def _end_transfer(self) -> None:
        """Ends what is left of a transfer that broke off, which the engine would refuse to begin again."""
        for path in ("/finish_weight_update", "/shutdown_weight_transfer_engine"):
            try:
                await self._call("POST", path, json={}, timeout=self._broadcast.timeout)
            except EngineError as error:
                log.info("engine %s had nothing to end: %s", self.url, error)

    async def _load_from_disk(self, checkpoint: str) -> None:
        """A failed load ends vLLM, so the caller must have checked the checkpoint."""
        method = self._reload_method or self.reload_method(await self.config())
        body = {"method": method, "kwargs": {"weights_path": checkpoint}}
        await self._call("POST", "/collective_rpc", json=body, timeout=WORK_SECONDS)

    async def require_adapters(self, rank: int) -> None:
        config = (await self.config()).get("lora_config")
        takes = next((each for each in LORA_RANKS if each >= rank), rank)
        how = f"start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank {takes}"
        if not config:
            raise without_lora(self.url, "was started without LoRA", how)
        if config["max_lora_rank"] < rank:
            why = f"takes adapters of rank {config['max_lora_rank']} at most, not {rank}"
            raise without_lora(self.url, why, how)
        # It refuses a request without names, and loads nothing.
        nothing = {"lora_name": "", "lora_path": ""}
        if (await self._ask("POST", "/v1/load_lora_adapter", json=nothing)).status_code == 404:
            raise without_lora(self.url, "loads no adapters while it runs", how)

    async def adapters(self) -> dict[str, str]:
        models = (await self._call("GET", "/v1/models")).json()["data"]
        return {model["id"]: model["root"] for model in models if model.get("parent") is not None}

    async def load_adapter(self, name: str, folder: str) -> None:
        body = {"lora_name": name, "lora_path": folder}
        await self._call("POST", "/v1/load_lora_adapter", json=body, timeout=WORK_SECONDS)

    async def unload_adapter(self, name: str, seconds: float = WORK_SECONDS) -> None:
        # Calls under way keep it until they end.
        await self._call("POST", "/v1/unload_lora_adapter", json={"lora_name": name}, timeout=seconds)

    async def checksum(self) -> str:
        response = await self._call("POST", "/weight_checker", json={"action": "checksum"}, timeout=WORK_SECONDS)
        return digest(response.json()["checksums"])

    async def model(self) -> dict[str, Any]:
        """Returns the engine's entry in /v1/models: `id`, and `max_model_len` where the engine gives it."""
        return (await self._call("GET", "/v1/models")).json()["data"][0]

    async def prompt_logprobs(
        self, token_ids: list[int], weight_version: str, *, adapter: str | None = None
    ) -> list[float]:
        model = await self.model()
        # The engine samples one token after the prompt.
        token_ids = token_ids[: int(model.get("max_model_len") or len(token_ids) + 1) - 1]
        body = {
            "model": adapter or model["id"],
            "prompt": token_ids,
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
            "cache_salt": cache_salt(weight_version),
        }
        choice = (await self._call("POST", "/v1/completions", json=body, timeout=WORK_SECONDS)).json()["choices"][0]
        entries = choice["prompt_logprobs"][1:]
        return [float(entry[str(token)]["logprob"]) for entry, token in zip(entries, token_ids[1:], strict=True)]
