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
from temporalio.runtime import LogForwardingConfig, LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError
from temporalio.worker import Worker

from .backends.registry import Backends
from .errors import GpuWorkerError, Request
from .log import about_run
from .progress import Progress
from .publish import fetch_ahead, publish_policy
from .turn import turn

TASK_QUEUE = "gpu"
HEARTBEAT_SECONDS = 1.0
RECONNECT_SECONDS = 2.0
LOGGED_METRICS = ("perf/", "timing_s/", "rollout_corr/kl", "actor/grad_norm")
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


def _summary(metrics: dict[str, float]) -> str:
    """Returns what the log says of a step that is done."""
    shown = [(name, value) for name, value in metrics.items() if name.startswith(LOGGED_METRICS)]
    return "".join(f", {name} {value:.4g}" for name, value in sorted(shown))


async def _run(request: Json, work: Callable[[Progress], Awaitable[Json]]) -> Json:
    """Runs `work` with heartbeats and turns its errors into Temporal's. Cancelled, it waits until `work` ends."""
    name = activity.info().activity_type
    version = request.get("weight_version") or f"{request.get('run_id')}@{request.get('version', 0)}"
    # Ids of runs of ours have no @.
    run_id = request.get("run_id") or version.split("@")[0]

    def note(text: str) -> None:
        # The ranks' connections, whose tasks are of no run, report progress too.
        with about_run(run_id):
            log.info("%s of %s: %s", name, version, text)

    with about_run(run_id):
        return await _run_logged(name, version, Progress(note), work)


async def _run_logged(name: str, version: str, progress: Progress, work: Callable[[Progress], Awaitable[Json]]) -> Json:
    beat = asyncio.create_task(_heartbeat(progress))
    task = asyncio.ensure_future(work(progress))
    try:
        result = await asyncio.shield(task)
        _require_finite(name, result)
        log.info("%s of %s is done%s", name, version, _summary(result.get("metrics") or {}))
        return result
    except asyncio.CancelledError:
        log.info("%s cancelled while: %s", name, progress.state)
        progress.cancel()
        with contextlib.suppress(Exception):
            await task
        raise
    except GpuWorkerError as error:
        log.error("%s: %s", name, error, extra={"error": error.kind})
        raise ApplicationError(str(error), type=error.kind, non_retryable=not error.retryable) from None
    except Exception:
        log.exception("%s failed", name)
        raise
    finally:
        beat.cancel()


class Activities:
    """`backends` run the train steps; publications need no device, and one at a time runs here."""

    def __init__(self, backends: Backends) -> None:
        self.backends = backends
        # A cancelled publication ends, with its resume, before the next one begins.
        self.publishing = asyncio.Lock()

    async def _publish(self, request: Json, progress: Progress) -> Json:
        # It may take long, and the publications of other runs need not wait for it.
        await fetch_ahead(request, progress)
        async with turn(self.publishing, progress, "waiting for another publication"):
            return await publish_policy(request, progress)

    @activity.defn(name="loadBase")
    async def load_base(self, request: Json) -> Json:
        return await _run(request, lambda p: self.backends.of(request).load_base(Request(request), p))

    @activity.defn(name="trainStep")
    async def train_step(self, request: Json) -> Json:
        backend = self.backends.of(request.get("trainer") or {})
        return await _run(request, lambda p: backend.train_step(Request(request), p))

    @activity.defn(name="publishPolicy")
    async def publish_policy(self, request: Json) -> Json:
        return await _run(request, lambda p: self._publish(Request(request), p))


def runtime_of(metrics_address: str | None) -> Runtime:
    """Returns a runtime that writes into this worker's log, and answers Prometheus at the address if there is one.

    Raises `BadSettings` when nothing can listen there.
    """
    into_log = LogForwardingConfig(logger=log.getChild("temporal"), append_target_to_name=False)
    logs = LoggingConfig(filter=LoggingConfig.default.filter, forwarding=into_log)
    metrics = metrics_address and PrometheusConfig(
        bind_address=metrics_address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
    )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=logs, metrics=metrics or None))
    except Exception as error:
        where = f"nothing can listen on {metrics_address} ({error})"
        raise GpuWorkerError("BadSettings", f"--metrics-address: {where}: name another port") from error


async def connect(address: str, namespace: str, stop: asyncio.Event, runtime: Runtime | None = None) -> Client | None:
    """Retries until Temporal answers or `stop` is set. Logs the first failure only."""
    warned = False
    while not stop.is_set():
        try:
            return await Client.connect(address, namespace=namespace, runtime=runtime)
        except (RuntimeError, RPCError) as error:
            if not warned:
                log.warning(
                    "Temporal does not answer at %s (%s); trying again until it does", address, str(error)[:120]
                )
                warned = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RECONNECT_SECONDS)
    return None


async def serve(
    address: str, namespace: str, backends: Backends, stop: asyncio.Event, metrics_address: str | None = None
) -> None:
    """Serves activities until `stop` is set, then cancels the running ones, waits for them and ends the ranks."""
    client = await connect(address, namespace, stop, runtime_of(metrics_address))
    if client is None:
        return
    activities = Activities(backends)
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        activities=[activities.load_base, activities.train_step, activities.publish_policy],
        max_concurrent_activities=8,
        graceful_shutdown_timeout=timedelta(seconds=0),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
    )
    try:
        async with worker:
            log.info("ready: task queue %s at %s", TASK_QUEUE, address)
            await stop.wait()
            log.info("stopping")
    finally:
        await backends.end()
