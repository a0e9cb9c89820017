"""What a publication gives to a replica: a whole model, or a LoRA adapter beside the others that the replica serves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import safe_open

from .engine import DEFAULT_BROADCAST, Engine, EngineError, WeightBroadcast, no_check
from .errors import GpuWorkerError
from .manifest import ADAPTER, BASE, Manifest, digest, read_manifest
from .tensor_file import sha256_of

UNLOAD_SECONDS = 10.0


@dataclass(frozen=True)
class Target:
    """The weights and weight version that a replica shall have."""

    weight_version: str
    checkpoint: str
    head_dtype: str
    broadcast: WeightBroadcast = field(default=DEFAULT_BROADCAST, kw_only=True)

    async def version_at(self, engine: Engine) -> str:
        """Returns the weight version under which calls of the run get their replies."""
        return await engine.weight_version()

    async def checksum_at(self, engine: Engine) -> str:
        return await engine.checksum()

    async def logprobs_at(self, engine: Engine, token_ids: list[int]) -> list[float]:
        return await engine.prompt_logprobs(token_ids, self.weight_version)

    async def require(self, engine: Engine) -> None:
        """Raises unless the replica was started so that it can load the weights."""
        await engine.require(self.head_dtype, self.broadcast)

    async def fetch_for(self, engine: Engine, previous: Target | None, check: Callable[[], None] = no_check) -> None:
        """Lets a relay worker before the replica fetch what `load_into` loads. Calls go on meanwhile."""
        if previous is not None:
            # The way back needs it during the pause. Without it the new weights can be loaded all the same.
            with contextlib.suppress(EngineError):
                await engine.fetch_checkpoint(previous.checkpoint, check)
        # It comes last, so that the load right after it finds it fetched and asks the gateway for nothing.
        await engine.fetch_checkpoint(self.checkpoint, check)

    async def load_into(self, engine: Engine, previous: Target | None, check: Callable[[], None] = no_check) -> None:
        """Loads the weights; if that fails, loads `previous` again and raises `EngineError`.

        The replica is resumed when this returns, raises or is cancelled. Until the pause it raises what `check` raises.
        """
        await self.require(engine)
        await self.fetch_for(engine, previous, check)
        await engine.prepare_reload(self.checkpoint)
        try:
            # A pause whose answer nobody waits for could come after the resume.
            await _to_its_end(engine.pause())
            try:
                await self._reload(engine)
            except EngineError as error:
                if previous is None:
                    raise
                await previous._reload(engine)
                raise EngineError(f"{error} (went back to {previous.weight_version})") from error
        finally:
            await _to_its_end(_resume(engine))

    async def _reload(self, engine: Engine) -> None:
        await engine.set_weight_version(f"loading:{self.weight_version}")
        await engine.reload(self.checkpoint)
        await engine.set_weight_version(self.weight_version)

    async def retract_from(self, engine: Engine) -> None:
        """Takes the weight version off a replica that did not confirm it, so that no gateway trusts it."""
        if await engine.weight_version() == self.weight_version:
            await engine.set_weight_version(f"unconfirmed:{self.weight_version}")

    async def unload_older(self, engine: Engine, keep: list[str]) -> None:
        """Unloads what no call may ask for any more."""


@dataclass(frozen=True)
class AdapterTarget(Target):
    """An adapter has the weight version as its name. The replica's own weight version names the base under it.

    Loading an adapter pauses nothing: calls go on with the adapters that they began with. Only a replica with another
    base is paused, once, to load the run's.
    """

    base_version: str
    rank: int
    weights_sha256: str

    async def version_at(self, engine: Engine) -> str:
        base = await engine.weight_version()
        has_it = self.checkpoint == (await engine.adapters()).get(self.weight_version)
        return self.weight_version if has_it and base == self.base_version else base

    async def checksum_at(self, engine: Engine) -> str:
        """Returns a digest of what is loaded, because no engine reports checksums of an adapter's tensors."""
        return digest([await engine.weight_version(), self.weights_sha256])

    async def logprobs_at(self, engine: Engine, token_ids: list[int]) -> list[float]:
        """Raises `EngineError` when the replica answers for the adapter with the base's log-probabilities (verl#7495).

        The step of an adapter may be smaller than what the canary tolerates, but it never leaves every bit as it was.
        """
        seen = await engine.prompt_logprobs(token_ids, self.weight_version, adapter=self.weight_version)
        if await asyncio.to_thread(_has_effect, self.checkpoint):
            of_base = await engine.prompt_logprobs(token_ids, self.base_version)
            if seen == of_base:
                raise EngineError(
                    f"it lists the adapter {self.weight_version} and answers as its base does: it dropped the adapter"
                )
        return seen

    @property
    def base(self) -> Target:
        folder = str(Path(self.checkpoint) / BASE)
        return Target(self.base_version, folder, self.head_dtype, broadcast=self.broadcast)

    async def require(self, engine: Engine) -> None:
        await super().require(engine)
        await engine.require_adapters(self.rank)
        await asyncio.to_thread(_require_whole, self.checkpoint, self.weights_sha256)

    async def fetch_for(self, engine: Engine, previous: Target | None, check: Callable[[], None] = no_check) -> None:
        if await engine.weight_version() != self.base_version:
            await self.base.fetch_for(engine, None, check)
        await engine.fetch_checkpoint(self.checkpoint, check)

    async def load_into(self, engine: Engine, previous: Target | None, check: Callable[[], None] = no_check) -> None:
        await self.require(engine)
        if await engine.weight_version() != self.base_version:
            await self.base.load_into(engine, None, check)
        await engine.fetch_checkpoint(self.checkpoint, check)
        if self.weight_version in await engine.adapters():
            await engine.unload_adapter(self.weight_version)
        await engine.load_adapter(self.weight_version, self.checkpoint)

    async def retract_from(self, engine: Engine) -> None:
        if self.weight_version in await engine.adapters():
            await engine.unload_adapter(self.weight_version)

    async def unload_older(self, engine: Engine, keep: list[str]) -> None:
        """Unloads adapters of this and of earlier runs. Those that are no version of a run are somebody else's."""
        for name in await engine.adapters():
            is_version = name.rpartition("@")[2].isdecimal()
            if is_version and name != self.weight_version and name not in keep:
                # The next publication unloads what calls still use.
                await engine.unload_adapter(name, UNLOAD_SECONDS)


def target_of(weight_version: str, checkpoint: str, head_dtype: str, broadcast: WeightBroadcast) -> Target:
    try:
        manifest = read_manifest(Path(checkpoint))
    except GpuWorkerError:
        # The checkpoint of the version before may be gone. Only a way back to it needs it.
        return Target(weight_version, checkpoint, head_dtype, broadcast=broadcast)
    if manifest.lora is None:
        return Target(weight_version, checkpoint, head_dtype, broadcast=broadcast)
    rank, base = manifest.lora["rank"], base_version(manifest)
    return AdapterTarget(
        weight_version, checkpoint, head_dtype, base, rank, manifest.files[ADAPTER], broadcast=broadcast
    )


def base_version(manifest: Manifest) -> str:
    """Returns the weight version of an engine that has the base model of this adapter. No run's id has a colon."""
    files = {file: sha for file, sha in manifest.files.items() if file.startswith(f"{BASE}/")}
    return f"base:{digest(files)[:32]}"


def _require_whole(checkpoint: str, weights_sha256: str) -> None:
    file = Path(checkpoint) / ADAPTER
    if not file.is_file() or sha256_of(file) != weights_sha256:
        what = f"the adapter {file} is not there, or does not have the sha256 of its manifest"
        raise GpuWorkerError("CorruptCheckpoint", f"{what}: delete {checkpoint} and redo the iteration that made it")


def _has_effect(checkpoint: str) -> bool:
    """Returns False for a version whose B are all 0, as those of version 0."""
    with safe_open(Path(checkpoint) / ADAPTER, "pt") as file:
        names = list(file.keys())
        return any(bool(file.get_tensor(name).any()) for name in names if ".lora_B." in name)


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Waits for `work` also when it is cancelled meanwhile: the connection must not be closed before."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


async def _resume(engine: Engine) -> None:
    try:
        await engine.resume()
    except EngineError:
        await asyncio.sleep(1.0)
        await engine.resume()
