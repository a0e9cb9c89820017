"""An engine's control routes: pause, new weights, what it has. Each kind of engine has a file of its own."""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from .errors import GpuWorkerError

# A reload, checksums and the canary take long on a slow or busy engine.
WORK_SECONDS = 900.0
POLL_SECONDS = 0.5
# A relay worker's own route (gateway/relay/checkpoints.ts).
FETCH_CHECKPOINT = "/trialgate/checkpoint"


def no_check() -> None:
    """Stands for the check of a caller that cannot be cancelled."""


def http_client(url: str) -> httpx.AsyncClient:
    """Returns a client for `http://host:port`, `unix:/path.sock` or `relay:WORKER`."""
    url = url.rstrip("/")
    # vLLM's server closes a connection after an error, and the next request on it would be lost.
    options: dict[str, Any] = {
        "timeout": httpx.Timeout(120.0, connect=5.0),
        "limits": httpx.Limits(max_keepalive_connections=0),
    }
    if is_relayed(url):
        gateway, key = os.environ.get("TRIALGATE_RELAY_URL"), os.environ.get("TRIALGATE_RELAY_KEY")
        if not gateway or not key:
            what = f"{url} is reached through the gateway: start this worker with --gateway-url and --secret"
            raise GpuWorkerError("EngineBehindRelay", what)
        base_url = f"{gateway.rstrip('/')}/relay/workers/{url.removeprefix('relay:')}"
        return httpx.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {key}"}, **options)
    if url.startswith("unix:"):
        transport = httpx.AsyncHTTPTransport(uds=url.removeprefix("unix:"), limits=options.pop("limits"))
        return httpx.AsyncClient(transport=transport, base_url="http://engine", **options)
    return httpx.AsyncClient(base_url=url, **options)


@dataclass(frozen=True)
class WeightBroadcast:
    """How weights travel to an engine: the run's `weight_broadcast`. `auto` asks each engine."""

    type: Literal["auto", "filesystem", "gloo", "nccl"] = "auto"
    timeout: float = 600.0


DEFAULT_BROADCAST = WeightBroadcast()


class EngineError(Exception):
    """Raised when a replica refuses or cannot be reached."""


class Engine(ABC):
    """One replica. `url` is `http://host:port`, `unix:/path.sock` or `relay:WORKER`."""

    def __init__(self, url: str, http: httpx.AsyncClient | None = None) -> None:
        self.url = url
        self._http = http or http_client(url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Returns the answer whatever its status is."""
        try:
            return await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise EngineError(f"{method} {path}: {type(error).__name__} {error}".strip()) from error

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        response = await self._ask(method, path, **options)
        if response.status_code == 404 and (refusal := self._without_route(path)):
            raise refusal
        if response.is_error:
            raise EngineError(f"{method} {path} answered {response.status_code}: {response.text[:300]}")
        return response

    async def fetch_checkpoint(self, checkpoint: str, check: Callable[[], None] = no_check) -> None:
        """Lets the relay worker before the engine, if there is one, fetch the checkpoint, which may take long.

        Until then the engine goes on answering calls. A worker that needs to fetch nothing says so at once. Raises
        whatever `check` raises meanwhile, and afterwards.
        """
        is_ready = not is_relayed(self.url)
        while not is_ready:
            check()
            answer = await self._ask("POST", FETCH_CHECKPOINT, json={"path": checkpoint})
            if answer.status_code == 403:
                break  # A worker of an older release, whose engine sees the deployment's folder.
            if answer.is_error:
                raise EngineError(_message_of(answer))
            try:
                is_ready = bool(answer.json()["ready"])
            except (ValueError, KeyError, TypeError) as error:
                what = f"the relay worker did not say whether it has {checkpoint}"
                raise EngineError(f"{what}: {answer.text[:300]}") from error
        check()

    def _without_route(self, path: str) -> GpuWorkerError | None:
        """Returns how to start the engine so that it has the route, or None."""
        return None

    @abstractmethod
    async def weight_version(self) -> str: ...

    @abstractmethod
    async def set_weight_version(self, weight_version: str) -> None: ...

    @abstractmethod
    async def is_paused(self) -> bool: ...

    @abstractmethod
    async def pause(self) -> None:
        """Freezes requests in flight; they go on after `resume`."""

    @abstractmethod
    async def resume(self) -> None: ...

    @abstractmethod
    async def require(self, head_dtype: str, broadcast: WeightBroadcast = DEFAULT_BROADCAST) -> None:
        """Raises `GpuWorkerError` when weights of this run's trainer cannot be loaded as it was started."""

    async def prepare_reload(self, checkpoint: str) -> None:  # noqa: B027 — most engines have nothing to prepare.
        """Does before the pause what `reload` would otherwise do during it."""

    @abstractmethod
    async def reload(self, checkpoint: str) -> None:
        """Loads a checkpoint into a paused replica and drops what it computed with the weights before."""

    @abstractmethod
    async def require_adapters(self, rank: int) -> None:
        """Raises `GpuWorkerError` when the engine was not started to load LoRA adapters of this rank."""

    @abstractmethod
    async def adapters(self) -> dict[str, str]:
        """Returns the folder of each LoRA adapter that is loaded, by its name."""

    @abstractmethod
    async def load_adapter(self, name: str, folder: str) -> None:
        """Loads an adapter. The name is never used for other weights."""

    @abstractmethod
    async def unload_adapter(self, name: str, seconds: float = WORK_SECONDS) -> None:
        """Raises `EngineError` after `seconds`: an engine may wait until calls under way no longer use it."""

    @abstractmethod
    async def checksum(self) -> str:
        """Returns a digest of the checksums of the engine's tensors, as the engine fused and sharded them."""

    @abstractmethod
    async def prompt_logprobs(
        self, token_ids: list[int], weight_version: str, *, adapter: str | None = None
    ) -> list[float]:
        """Returns the log-probability of each token but the first, at temperature 1; without an adapter the base's.

        A prompt beyond the engine's context is cut. KV computed under another weight_version is not reused.
        """


def _message_of(answer: httpx.Response) -> str:
    """Returns the sentence of a refusal by the gateway or a relay worker."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"{answer.request.url.path} answered {answer.status_code}: {answer.text[:300]}"


def head_dtype_differs(url: str, found: str, wanted: str, name: str, option: str) -> GpuWorkerError:
    """Returns the refusal of an engine whose output head computes in another dtype than the trainer's.

    If only one side computes in float32, log-probabilities differ more than if neither does: in bfloat16 both round
    logits to the same grid.
    """
    what = f"engine {url} computes its output head as `head_dtype: {found}`, and the run's trainer as {wanted}"
    if wanted == "float32":
        how = f"set `head_dtype: float32` in trialgate.yaml, or start {name} with {option}"
    else:
        how = f"set `head_dtype: float32` in the run file, or start {name} without {option}"
    return GpuWorkerError("HeadDtypeDiffers", f"{what}: {how}")


def cannot_receive(url: str, kind: str, why: str, how: str) -> GpuWorkerError:
    what = f"engine {url} {why}, and the run file has `weight_broadcast.type: {kind}`"
    return GpuWorkerError("EngineWithoutTransfer", f"{what}: {how}, or set it to filesystem")


def without_lora(url: str, why: str, how: str) -> GpuWorkerError:
    return GpuWorkerError("EngineWithoutLora", f"engine {url} {why}, and the run trains a LoRA adapter: {how}")


def is_relayed(url: str) -> bool:
    """True for an engine behind a relay worker."""
    return url.startswith("relay:")


async def connect(url: str, seconds: float = 0.0, check: Callable[[], None] = no_check) -> Engine:
    """Waits until the replica answers calls, and returns it as the kind of engine that it is.

    Raises `EngineError` after `seconds`, and whatever `check` raises meanwhile.
    """
    deadline = time.monotonic() + seconds
    http = http_client(url)
    try:
        while True:
            check()
            try:
                if engine := await _identify(url, http):
                    return engine
                reason = "it is starting"
            except httpx.HTTPError as error:
                reason = f"{type(error).__name__} {error}".strip()
            if time.monotonic() > deadline:
                raise EngineError(f"not ready within {seconds:.0f} s ({reason})")
            await asyncio.sleep(POLL_SECONDS)
    except BaseException:
        await http.aclose()
        raise


async def _identify(url: str, http: httpx.AsyncClient) -> Engine | None:
    """Returns None while it answers no calls.

    Only SGLang has `/model_info`, whatever it was started with. SGLang's `/health` is not asked: it samples a token,
    and finds no sign of life during a pause.
    """
    from .sglang_engine import SglangEngine
    from .vllm_engine import VllmEngine

    response = await http.get("/model_info", timeout=10.0)
    answer = response.json() if response.status_code == 200 else {}
    if "weight_version" in answer:
        return SglangEngine(url, http)
    return VllmEngine(url, http) if (await http.get("/health", timeout=10.0)).is_success else None
