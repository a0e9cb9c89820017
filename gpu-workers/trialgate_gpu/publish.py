"""Publishes a checkpoint to every replica of a pool and checks on each that the weights arrived (invariant 11).

A replica counts as published when it reports the new weight version, its tensors' checksums equal those of the other
replicas and differ from the version before, and its canary differs little from the trainer's. While weights are loaded
the weight version is `loading:...`, so that a replica whose publisher was killed half-way never passes for
either version. Every publication ends in a resume of the engines that still answer. `target.py` says what differs for
an adapter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Coroutine, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from .canary import Canary
from .engine import Engine, EngineError, WeightBroadcast, connect, is_relayed
from .errors import GpuWorkerError
from .manifest import read_manifest
from .progress import Progress
from .target import Target, target_of

log = logging.getLogger("trialgate.gpu")

FIRST_TOLERANCE = 0.25
LEAST_TOLERANCE = 0.02
TOLERANCE_FACTOR = 2.0
# A few wrong rows of the embeddings hardly move the mean, but their tokens are nats off. Rounding is never that large.
FAR = 1.0
FAR_SHARE = 0.01
READY_SECONDS = 180.0
DIFFERS = "its tensors' checksums differ from the other replicas'"


def allowed_difference(seen_at_version_0: float | None) -> float:
    """Returns the largest accepted mean absolute difference between the canary's and the trainer's logprobs, in nats.

    Version 0 has nothing to compare with and accepts 0.25: engines in FP8 pass, other models and most wrong tensors do
    not. Later versions accept twice the difference of version 0 (rounding varies with the weights), at least 0.02.
    """
    return FIRST_TOLERANCE if seen_at_version_0 is None else max(TOLERANCE_FACTOR * seen_at_version_0, LEAST_TOLERANCE)


@dataclass
class Replica:
    url: str
    ok: bool = False
    weight_version: str | None = None
    checksum: str | None = None
    canary_difference: float | None = None
    seconds: float = 0.0
    error: str | None = None


async def inspect(engine: Engine, replica: Replica, target: Target, canary: Canary, allowed: float) -> None:
    """Fills `replica` with what the engine reports. Raises `EngineError` unless weight version and canary are right."""
    weight_version = target.weight_version
    replica.weight_version = await target.version_at(engine)
    if replica.weight_version != weight_version:
        raise EngineError(
            f"its weight version reads {replica.weight_version!r}, not {weight_version!r}: "
            "it restarted, or another run publishes to it"
        )
    replica.checksum = await target.checksum_at(engine)
    seen = await target.logprobs_at(engine, canary.token_ids)
    differences = [abs(a - b) for a, b in zip(seen, canary.logprobs[: len(seen)], strict=True)]
    if not all(map(math.isfinite, differences)):
        raise EngineError(
            f"a log-probability of its canary is not finite: it does not carry the weights of {weight_version}"
        )
    replica.canary_difference = fmean(differences)
    far = sum(difference > FAR for difference in differences)
    what = None
    if not replica.canary_difference <= allowed:
        what = f"by {replica.canary_difference:.4f} nats (mean of {len(seen)} tokens), more than {allowed:.4f}"
    elif far > FAR_SHARE * len(differences):
        what = f"by more than {FAR:g} nat at {far} of {len(seen)} tokens"
    if what is not None:
        what = f"its canary differs from the trainer's {what}"
        raise EngineError(f"{what}: it does not carry the weights of {weight_version}")


class Publication:
    """Runs one call of `publishPolicy`."""

    def __init__(self, request: dict[str, Any], progress: Progress) -> None:
        head_dtype = request.get("head_dtype") or "model"
        how = head_dtype, WeightBroadcast(**(request.get("weight_broadcast") or {}))
        self.target = target_of(request["weight_version"], request["checkpoint"], *how)
        given = request.get("previous")
        self.previous = target_of(given["weight_version"], given["checkpoint"], *how) if given else None
        self.keep: list[str] = request.get("keep") or []
        self.previous_checksums: dict[str, str] = (given or {}).get("checksums") or {}
        self.checksum: str | None = request.get("checksum")
        self.canary = Canary.from_json(request["canary"])
        self.allowed = allowed_difference(request.get("canary_tolerance"))
        self.min_replicas = int(request["min_replicas"])
        self.ready_seconds = float(request.get("ready_seconds") or READY_SECONDS)
        self.replicas = [Replica(url) for url in request["replicas"]]
        self.progress = progress
        self.refusals: list[GpuWorkerError] = []

    def _weights_changed(self) -> bool:
        """Returns False after a step without advantages: its weights are those of the version before."""
        new = read_manifest(Path(self.target.checkpoint))
        if self.previous is None:
            return True
        try:
            return read_manifest(Path(self.previous.checkpoint)).weights_sha256 != new.weights_sha256
        except GpuWorkerError:
            return True

    async def fetch_ahead(self) -> None:
        """Lets the relay workers before the replicas fetch what will be loaded. A failure is left to `run`."""
        relayed = [replica for replica in self.replicas if is_relayed(replica.url)]
        await _all(self._fetch_for(replica) for replica in relayed)

    async def _fetch_for(self, replica: Replica) -> None:
        with contextlib.suppress(EngineError, GpuWorkerError):
            async with await connect(replica.url) as engine:
                if await self.target.version_at(engine) == self.target.weight_version:
                    return
                await self.target.require(engine)
                self.progress.show("fetch weights", replica=replica.url)
                await self.target.fetch_for(engine, self.previous, self.progress.check)

    async def run(self) -> dict[str, Any]:
        changed = self._weights_changed()
        await _all(self._publish_to(replica, changed) for replica in self.replicas)
        self._compare_checksums()
        confirmed = sum(replica.ok for replica in self.replicas)
        published = confirmed >= self.min_replicas
        failed = [replica for replica in self.replicas if not replica.ok]
        if published:
            await _all(self._retract_weight_version(replica) for replica in failed)
            await _all(self._unload_older(replica) for replica in self.replicas if replica.ok)
        else:
            await _all(self._restore_previous(replica) for replica in self.replicas)
            if self.refusals:
                raise self.refusals[0]
        return {
            "published": published,
            "canary_allowed": self.allowed,
            "replicas": [asdict(replica) for replica in self.replicas],
        }

    async def _publish_to(self, replica: Replica, changed: bool) -> None:
        start = time.perf_counter()
        try:
            self.progress.show("wait for engine", replica=replica.url)
            async with await connect(replica.url, self.ready_seconds, self.progress.check) as engine:
                if not await self._already_there(engine, replica):
                    self.progress.show("load weights", replica=replica.url)
                    await self.target.load_into(engine, self.previous, self.progress.check)
                    self.progress.show("check weights", replica=replica.url)
                    await inspect(engine, replica, self.target, self.canary, self.allowed)
                if changed and replica.checksum == self.previous_checksums.get(replica.url):
                    raise EngineError(
                        "its tensors have the checksums of the version before: the new weights did not arrive"
                    )
                if self.checksum is not None and replica.checksum != self.checksum:
                    raise EngineError(DIFFERS)
                replica.ok = True
        except EngineError as error:
            replica.error = str(error)
        except GpuWorkerError as refusal:
            replica.error = str(refusal)
            self.refusals.append(refusal)
        finally:
            replica.seconds = round(time.perf_counter() - start, 3)

    async def _already_there(self, engine: Engine, replica: Replica) -> bool:
        if await self.target.version_at(engine) != self.target.weight_version:
            return False
        try:
            if await engine.is_paused():
                await engine.resume()
            await inspect(engine, replica, self.target, self.canary, self.allowed)
        except EngineError:
            return False
        return True

    def _compare_checksums(self) -> None:
        """Unconfirms replicas whose checksums differ from the majority's."""
        counted = Counter(replica.checksum for replica in self.replicas if replica.ok)
        if len(counted) < 2:
            return
        majority = counted.most_common(1)[0][0]
        for replica in self.replicas:
            if replica.ok and replica.checksum != majority:
                replica.ok, replica.error = False, DIFFERS

    async def _retract_weight_version(self, replica: Replica) -> None:
        replica.weight_version = None
        try:
            async with await connect(replica.url) as engine:
                await self.target.retract_from(engine)
                replica.weight_version = await engine.weight_version()
                await self._check_previous(engine, replica)
        except (EngineError, GpuWorkerError) as error:
            replica.error = f"{replica.error}; and it could not go back: {error}"

    async def _unload_older(self, replica: Replica) -> None:
        """Unloads adapters that no call may ask for any more. One that stays loaded does no harm."""
        try:
            async with await connect(replica.url) as engine:
                await self.target.unload_older(engine, self.keep)
        except (EngineError, GpuWorkerError) as error:
            log.warning("engine %s keeps its older adapters: %s", replica.url, error)

    async def _restore_previous(self, replica: Replica) -> None:
        """Loads the version before into a replica that left it. Leaves a replica that cannot be reached as it is.

        `Progress.check` is not passed on: a publication that is cancelled now still finishes the way back.
        """
        was_ok, replica.ok = replica.ok, False
        if was_ok:
            replica.error = f"fewer than {self.min_replicas} replicas confirmed {self.target.weight_version}"
        if self.previous is None:
            await self._retract_weight_version(replica)
            return
        try:
            async with await connect(replica.url) as engine:
                await self.target.retract_from(engine)
                replica.weight_version = await self.previous.version_at(engine)
                if replica.weight_version != self.previous.weight_version:
                    await self.previous.load_into(engine, None)
                    replica.weight_version = await self.previous.version_at(engine)
                await self._check_previous(engine, replica)
        except (EngineError, GpuWorkerError) as error:
            replica.error = f"{replica.error}; and it could not go back: {error}"

    async def _check_previous(self, engine: Engine, replica: Replica) -> None:
        """Takes the version before off a replica that went back to it, unless its tensors are those of that version.

        Its file may have changed since it was published, or loading may have left tensors of the new version. A replica
        that does not say which tensors it has loses the version too.
        """
        expected = next(iter(self.previous_checksums.values()), None)
        if self.previous is None or expected is None or replica.weight_version != self.previous.weight_version:
            return
        try:
            if await self.previous.checksum_at(engine) == expected:
                return
            what = f"its tensors do not have the checksums of {self.previous.weight_version}"
        except EngineError as error:
            what = f"the checksums of its tensors cannot be read: {error}"
        replica.weight_version = None
        await self.previous.retract_from(engine)
        replica.weight_version = await engine.weight_version()
        raise EngineError(what)


async def _all(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Ends when all have ended, also when it is cancelled: `gather` would end with the first of them."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def fetch_ahead(request: dict[str, Any], progress: Progress) -> None:
    await Publication(request, progress).fetch_ahead()


async def publish_policy(request: dict[str, Any], progress: Progress) -> dict[str, Any]:
    return await Publication(request, progress).run()
