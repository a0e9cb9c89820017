"""Gives a trainer's weights to the gateway's engines: TRL's `WeightTransferProtocol`."""

from __future__ import annotations

import logging
import re
import shutil
import uuid
from asyncio import gather
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zlib import crc32

from trialgate_gpu.engine import Engine, EngineError, connect
from trialgate_gpu.errors import GpuWorkerError
from trialgate_gpu.target import Target
from trialgate_gpu.vllm_engine import VllmEngine

from .errors import RolloutError
from .gateway import Gateway, LoopThread

if TYPE_CHECKING:
    import torch

log = logging.getLogger("trialgate")
# Tensors are collected up to this size before they are written, so the whole model is never in memory twice.
SHARD_BYTES = 2**30
READY_SECONDS = 300.0
# The engine's log-probabilities of these ids tell whether its weights have changed. A checksum alone does not: on a CPU
# vLLM's leaves out the tensors that it has packed.
PROBE = [(7919 * i) % 997 + 2 for i in range(256)]


@dataclass(frozen=True)
class Computed:
    """What an engine has and computes after it has loaded a version."""

    checksum: str
    logprobs: tuple[float, ...]


class Weights:
    """Writes each version as a folder of safetensors, and has every engine of the gateway load it.

    An engine reads the folder from disk. One that was started to receive weights (docs/gateway.md) gets them over TCP.
    With LoRA the trainer sends the base weights with the adapter merged into them, so an engine needs no adapter.
    """

    def __init__(self, gateway: Gateway, loop: LoopThread, folder: str | Path | None, head_dtype: str) -> None:
        self.name = f"trl-{uuid.uuid4().hex[:8]}"
        self.version = 0
        self._sending = 0
        self._gateway = gateway
        self._loop = loop
        self._home = folder
        self._folder: TemporaryDirectory[str] | None = None
        self._paused: set[str] = set()
        self._head_dtype = head_dtype
        self._current: Target | None = None
        self._digest: int | None = None
        self._dtype: torch.dtype | None = None
        self._computed: dict[str, Computed] = {}

    @property
    def newest(self) -> int:
        """The newest version that an engine may have. Each answers with a version before all of them have it."""
        return max(self.version, self._sending)

    def version_of(self, weight_version: str | None) -> int | None:
        """Returns the version of this trainer's weights that a weight version names, or None."""
        # An engine is paused while it says that it loads, so what it samples then comes from the new weights.
        name, _, version = (weight_version or "").removeprefix("loading:").rpartition("@")
        return int(version) if name == self.name and version.isdecimal() else None

    def init_weight_transfer(self) -> None:
        """Waits for the engines. Raises `RolloutError` when one of them belongs to a run or cannot be loaded."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix=f"{self.name}-", dir=self._home, ignore_cleanup_errors=True)
            if self._home is not None:
                # It is private as it is made. Who may read the engines' folder, the folder's own mode says.
                Path(self._folder.name).chmod(0o755)
        self._loop.run(self._on_each(self._prepare))

    def pause(self) -> None:
        """Raises `RolloutError` when an engine cannot be paused. Then none of them stays paused."""
        try:
            self._loop.run(self._on_each(self._pause))
        except BaseException:
            self.resume_paused()
            raise

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Raises `RolloutError` when an engine does not have the new weights at the end.

        Then it has those of the version before, if there is one, and goes on to answer calls.
        """
        try:
            self._send(iterator)
        except BaseException:
            self._sending = 0
            self.resume_paused()
            raise

    def resume(self) -> None:
        self._loop.run(self._on_each(self._resume))

    def resume_paused(self) -> None:
        """Resumes the engines that are still paused. Hides no earlier error, and does not wait for a dead engine."""
        for url in list(self._paused):
            try:
                self._loop.run(self._with_engine(url, self._resume, 0))
            except Exception as error:
                log.error("engine %s may still be paused: %s. Send it POST /resume, or start it again", url, error)
                self._paused.discard(url)

    def destroy(self) -> None:
        """Resumes what is still paused, and removes what was written. The engines keep the last version."""
        self.resume_paused()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _send(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        if self._folder is None:
            self.init_weight_transfer()
            assert self._folder is not None
        home = Path(self._folder.name)
        version = self._sending = self.version + 1
        folder = home / str(version)
        digest = write_weights(iterator, folder, self._dtype)
        if digest == self._digest:
            log.warning("the trainer's weights of version %d are those of version %d", version, self.version)
        previous = self._current
        target = Target(f"{self.name}@{version}", str(folder), self._head_dtype)
        computed = dict(self._loop.run(self._on_each(lambda engine: self._give(engine, target, previous))))
        self._check(computed, digest)
        self._current, self._digest, self._computed, self.version = target, digest, computed, version
        for old in range(1, version - 1):
            shutil.rmtree(home / str(old), ignore_errors=True)

    async def _pause(self, engine: Engine) -> None:
        # The engine may do it and its answer be lost.
        self._paused.add(engine.url)
        await engine.pause()

    async def _resume(self, engine: Engine) -> None:
        await engine.resume()
        self._paused.discard(engine.url)

    async def _prepare(self, engine: Engine) -> None:
        """Writes weights in the engine's own format, so that rounding does not make the same weights differ."""
        import torch

        await engine.require(self._head_dtype)
        if isinstance(engine, VllmEngine):
            name = str((await engine.config())["model_config"].get("dtype") or "").removeprefix("torch.")
            self._dtype = getattr(torch, name, None)

    async def _give(self, engine: Engine, target: Target, previous: Target | None) -> tuple[str, Computed]:
        await target.load_into(engine, previous)
        found = await engine.weight_version()
        if found != target.weight_version:
            raise EngineError(
                f"its weight version reads {found!r}: it was started again, or another program changed it"
            )
        logprobs = await engine.prompt_logprobs(PROBE, found)
        return engine.url, Computed(await engine.checksum(), tuple(logprobs))

    def _check(self, computed: dict[str, Computed], digest: int) -> None:
        if len({each.checksum for each in computed.values()}) > 1:
            raise RolloutError(
                f"the engines {', '.join(computed)} have different tensors after they loaded the same weights: "
                "start them with the same model, dtype and options"
            )
        if digest != self._digest and self._digest is not None:
            for url, each in computed.items():
                if each == self._computed.get(url):
                    raise RolloutError(
                        f"engine {url} computes the same as before, and the trainer's weights have changed: "
                        "it does not load what this trainer sends. Is it started with the trainer's model?"
                    )

    async def _on_each(self, do: Any) -> list[Any]:
        urls = await self._urls()
        results = await gather(*(self._with_engine(url, do) for url in urls), return_exceptions=True)
        for url, result in zip(urls, results, strict=True):
            if isinstance(result, EngineError | GpuWorkerError):
                raise RolloutError(f"engine {url} cannot get the trainer's weights: {result}") from result
            if isinstance(result, BaseException):
                raise result
        return results

    async def _with_engine(self, url: str, do: Any, wait_seconds: float = READY_SECONDS) -> Any:
        async with await connect(url, wait_seconds) as engine:
            return await do(engine)

    async def _urls(self) -> list[str]:
        """Returns the engines that answer calls outside runs."""
        engines = (await self._gateway.ask(lambda client: client.engines()))["engines"]
        # A kind that a URL names takes no weights: `openai+http://…`.
        own = [engine for engine in engines if not re.match(r"[a-z]+\+", engine["url"])]
        for engine in own:
            if engine["run_id"] is not None:
                raise RolloutError(
                    f"engine {engine['url']} belongs to the run {engine['run_id']}, whose weights would be lost: "
                    "wait until the run has ended, or give this trainer a gateway with other engines"
                )
        if not own:
            raise RolloutError(
                f"the gateway at {self._gateway.url} has no engine that loads weights: start it with --engine URL, or "
                "`npx trialgate engine join URL`"
            )
        return [engine["url"] for engine in own]


def write_weights(iterator: Iterator[tuple[str, torch.Tensor]], folder: Path, dtype: torch.dtype | None = None) -> int:
    """Writes tensors as safetensors, as they come and in `dtype`, and returns a checksum of all of them."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    shard: dict[str, torch.Tensor] = {}
    size = digest = shards = 0

    def flush() -> None:
        nonlocal shard, size, shards
        if shard:
            save_file(shard, folder / f"model-{shards:05}.safetensors", metadata={"format": "pt"})
            shard, size, shards = {}, 0, shards + 1

    for name, tensor in iterator:
        # A view would be written with all of what it is a view of, and the trainer goes on to change its tensors.
        own = tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None, copy=True).contiguous()
        digest = crc32(own.view(-1).view(torch.uint8).numpy(), crc32(name.encode(), digest))
        shard[name] = own
        size += own.nbytes
        if size >= SHARD_BYTES:
            flush()
    flush()
    if shards == 0:
        raise RolloutError("the trainer sent no weights: all of its parameters are frozen. Unfreeze some, or use LoRA")
    return digest


def named_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields a model's tensors by the names of its checkpoint. Adapters must have been merged.

    Every process of a sharded trainer must iterate over it, because each gathers its part.
    """
    adapter = getattr(model, "prefix", None)
    for name, parameter in model.named_parameters():
        name = name.removeprefix("module.").replace("_checkpoint_wrapped_module.", "")
        name = name.removeprefix("base_model.model.").replace(".base_layer", "")
        if "original_module" in name or (adapter and adapter in name):
            continue
        gathered = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        yield name.replace("modules_to_save.default.", ""), gathered.detach()
