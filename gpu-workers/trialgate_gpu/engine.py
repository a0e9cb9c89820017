"""Calls the control routes of one vLLM replica (VLLM_SERVER_DEV_MODE=1), over TCP or a Unix socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import httpx

from .errors import GpuWorkerError
from .manifest import digest

# A reload, checksums and the canary take long on a slow or busy engine.
WORK_SECONDS = 900.0
POLL_SECONDS = 0.5
HEAD_OVERRIDE = '\'{"head_dtype": "float32"}\''
EXTENSION = "trialgate_gpu.vllm_extension.TrialgateWorker"


def _client(url: str) -> httpx.AsyncClient:
    timeout = httpx.Timeout(120.0, connect=5.0)
    if url.startswith("unix:"):
        transport = httpx.AsyncHTTPTransport(uds=url.removeprefix("unix:"))
        return httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=timeout)
    return httpx.AsyncClient(base_url=url, timeout=timeout)


def cache_salt(weight_version: str) -> str:
    """Returns the salt of the canary's prompt. vLLM refuses `@` and `/`; run ids have no `:`,
    so the salts of two weight versions differ.

    The gateway derives another salt from the same weight version (`gateway/chat/engine-body.ts`), because it must
    encode any text that an engine may have there. The two need not agree: the canary only must not reuse what was
    computed under an earlier weight version.
    """
    return weight_version.replace("@", ":")


class EngineError(Exception):
    """Raised when a replica refuses or cannot be reached."""


class Engine:
    """`url` is `http://host:port` or `unix:/path.sock`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = _client(url.rstrip("/"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise EngineError(f"{method} {path}: {type(error).__name__} {error}".strip()) from error
        if response.status_code == 404 and not path.startswith("/v1"):
            what = f"engine {self.url} has no {path}: start vLLM with VLLM_SERVER_DEV_MODE=1"
            raise GpuWorkerError("EngineWithoutDevRoutes", what)
        if response.is_error:
            raise EngineError(f"{method} {path} answered {response.status_code}: {response.text[:300]}")
        return response

    async def wait_ready(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Waits until /health answers. Raises `EngineError` after `seconds`, and whatever `check` raises meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            check()
            try:
                await self._call("GET", "/health", timeout=10.0)
                return
            except EngineError as error:
                if time.monotonic() > deadline:
                    raise EngineError(f"not ready within {seconds:.0f} s ({error})") from error
                await asyncio.sleep(POLL_SECONDS)

    async def weight_version(self) -> str:
        return str((await self._call("GET", "/weight_info")).json()["weight_version"])

    async def set_weight_version(self, weight_version: str) -> None:
        await self._call("POST", "/update_weight_version", json={"new_version": weight_version})

    async def is_paused(self) -> bool:
        return bool((await self._call("GET", "/is_paused")).json()["is_paused"])

    async def pause(self) -> None:
        """Freezes requests in flight; they go on after `resume`."""
        await self._call("POST", "/pause", params={"mode": "keep", "clear_cache": "false"})

    async def resume(self) -> None:
        await self._call("POST", "/resume")

    async def config(self) -> dict[str, Any]:
        """Returns the configuration that vLLM was started with (its `VllmConfig`)."""
        return (await self._call("GET", "/server_info", params={"config_format": "json"})).json()["vllm_config"]

    def require_head_dtype(self, config: dict[str, Any], wanted: str) -> None:
        """Raises `HeadDtypeDiffers` unless the heads of engine and trainer compute in the same dtype.

        If only one side computes in float32, log-probabilities differ more than if neither does: in bfloat16 both
        round logits to the same grid.
        """
        overrides = (config.get("model_config") or {}).get("hf_overrides") or {}
        found = "float32" if overrides.get("head_dtype") == "float32" else "model"
        if found == wanted:
            return
        what = f"engine {self.url} computes its output head as `head_dtype: {found}`, and the run's trainer as {wanted}"
        if wanted == "float32":
            how = "set `head_dtype: float32` in trialgate.yaml, or start vLLM with --hf-overrides " + HEAD_OVERRIDE
        else:
            how = "set `head_dtype: float32` in the run file, or start vLLM without --hf-overrides " + HEAD_OVERRIDE
        raise GpuWorkerError("HeadDtypeDiffers", f"{what}: {how}")

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

    async def reload(self, checkpoint: str, method: str) -> None:
        """Loads a checkpoint. A failed reload ends vLLM, so the caller must have checked the checkpoint."""
        body = {"method": method, "kwargs": {"weights_path": checkpoint}}
        await self._call("POST", "/collective_rpc", json=body, timeout=WORK_SECONDS)

    async def reset_prefix_cache(self) -> None:
        await self._call("POST", "/reset_prefix_cache")

    async def checksum(self) -> str:
        """Returns a digest of the checksums of the engine's tensors, as the engine fused and sharded them."""
        response = await self._call("POST", "/weight_checker", json={"action": "checksum"}, timeout=WORK_SECONDS)
        return digest(response.json()["checksums"])

    async def model(self) -> dict[str, Any]:
        """Returns the engine's entry in /v1/models: `id`, and `max_model_len` where the engine gives it."""
        return (await self._call("GET", "/v1/models")).json()["data"][0]

    async def prompt_logprobs(self, token_ids: list[int], weight_version: str) -> list[float]:
        """Returns the log-probability of each token but the first, at temperature 1.

        A prompt beyond the engine's context is cut. KV computed under another weight_version is not reused.
        """
        model = await self.model()
        # The engine samples one token after the prompt.
        token_ids = token_ids[: int(model.get("max_model_len") or len(token_ids) + 1) - 1]
        body = {
            "model": model["id"],
            "prompt": token_ids,
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
            "cache_salt": cache_salt(weight_version),
        }
        choice = (await self._call("POST", "/v1/completions", json=body, timeout=WORK_SECONDS)).json()["choices"][0]
        entries = choice["prompt_logprobs"][1:]
        return [float(entry[str(token)]["logprob"]) for entry, token in zip(entries, token_ids[1:], strict=True)]
