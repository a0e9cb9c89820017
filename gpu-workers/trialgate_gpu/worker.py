"""Serves three activities to Temporal on the task queue `gpu`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from .device import is_out_of_memory, out_of_memory
from .errors import GpuWorkerError
from .load_base import load_base
from .progress import Progress
from .publish import publish_policy
from .train_step import Trainer

TASK_QUEUE = "gpu"
HEARTBEAT_SECONDS = 1.0
RECONNECT_SECONDS = 2.0
log = logging.getLogger("trialgate.gpu")

Json = dict[str, Any]


async def _heartbeat(progress: Progress) -> None:
    while True:
        activity.heartbeat(progress.state)
        await asyncio.sleep(HEARTBEAT_SECONDS)


def _require_finite(name: str, result: Json) -> None:
    """Raises when the result has NaN or infinity: JavaScript cannot parse that JSON, and the workflow would hang."""
    try:
        json.dumps(result, allow_nan=False)
    except ValueError:
        what = f"{name} is done, but its result has a number that is not finite"
        raise GpuWorkerError("NotFinite", f"{what}: see the GPU worker's log, then resume the run") from None


async def _run(work: Callable[[Progress], Awaitable[Json]]) -> Json:
    """Runs `work` with heartbeats and turns its errors into Temporal's. Cancelled, it waits until `work` ends."""
    progress = Progress()
    beat = asyncio.create_task(_heartbeat(progress))
    task = asyncio.ensure_future(work(progress))
    name = activity.info().activity_type
    try:
        result = await asyncio.shield(task)
        _require_finite(name, result)
        return result
    except asyncio.CancelledError:
        log.info("%s cancelled while: %s", name, progress.state)
        progress.cancel()
        with contextlib.suppress(Exception):
            await task
        raise
    except GpuWorkerError as error:
        log.error("%s: %s", name, error)
        raise ApplicationError(str(error), type=error.kind, non_retryable=not error.retryable) from None
    except KeyError as error:
        raise ApplicationError(f"{name}: the request has no {error}", type="BadRequest", non_retryable=True) from None
    except Exception:
        log.exception("%s failed", name)
        raise
    finally:
        beat.cancel()


class Activities:
    """`training` lets one step at a time use the device; a step that waits for it heartbeats meanwhile."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.training = asyncio.Lock()
        # A cancelled publication ends, with its resume, before the next one begins.
        self.publishing = asyncio.Lock()

    async def _exclusively(self, progress: Progress, work: Callable[[], Json]) -> Json:
        progress.show("waiting for another step")
        async with self.training:
            progress.check()
            return await asyncio.to_thread(self._in_memory, work)

    def _in_memory(self, work: Callable[[], Json]) -> Json:
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.trainer.forget()
            raise out_of_memory(error, self.trainer.pack_tokens) from None

    async def _publish(self, request: Json, progress: Progress) -> Json:
        progress.show("waiting for another publication")
        async with self.publishing:
            progress.check()
            return await publish_policy(request, progress)

    @activity.defn(name="loadBase")
    async def load_base(self, request: Json) -> Json:
        return await _run(lambda p: self._exclusively(p, lambda: load_base(self.trainer, request, p)))

    @activity.defn(name="trainStep")
    async def train_step(self, request: Json) -> Json:
        return await _run(lambda p: self._exclusively(p, lambda: self.trainer.train_step(request, p)))

    @activity.defn(name="publishPolicy")
    async def publish_policy(self, request: Json) -> Json:
        return await _run(lambda p: self._publish(request, p))


async def connect(address: str, namespace: str, stop: asyncio.Event) -> Client | None:
    """Retries until Temporal answers or `stop` is set. Logs the first failure only."""
    warned = False
    while not stop.is_set():
        try:
            return await Client.connect(address, namespace=namespace)
        except (RuntimeError, RPCError) as error:
            if not warned:
                log.warning(
                    "Temporal does not answer at %s (%s); trying again until it does", address, str(error)[:120]
                )
                warned = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RECONNECT_SECONDS)
    return None


async def serve(address: str, namespace: str, trainer: Trainer, stop: asyncio.Event) -> None:
    """Serves activities until `stop` is set, then cancels the running ones and waits for them."""
    client = await connect(address, namespace, stop)
    if client is None:
        return
    activities = Activities(trainer)
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        activities=[activities.load_base, activities.train_step, activities.publish_policy],
        max_concurrent_activities=8,
        graceful_shutdown_timeout=timedelta(seconds=0),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
    )
    async with worker:
        log.info("ready: task queue %s at %s, device %s", TASK_QUEUE, address, trainer.device)
        await stop.wait()
        log.info("stopping")
