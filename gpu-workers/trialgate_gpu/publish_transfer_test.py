"""Tests publication by weight transfer (`weight_broadcast`) against engines that follow vLLM's phases.

weight_transfer_real_test.py shows that a real vLLM receives in the same way by gloo. What NCCL itself does only GPUs
can show: here vLLM's own code sends and receives, with a stand-in in the place of NCCL.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import stand_in_nccl
from scripted_engine import ScriptedEngine
from scripted_transfer import (
    FINISH,
    INIT,
    PHASES,
    SHUTDOWN,
    START,
    UPDATE,
    GlooReceiver,
    NcclReceiver,
    ScriptedTransfer,
    digest_of_folder,
)

from . import vllm_engine, weight_sender
from .errors import GpuWorkerError
from .manifest import Manifest
from .progress import Progress
from .publish import publish_policy
from .weight_sender import GlooSender, NcclSender

pytestmark = pytest.mark.processes
FORK = multiprocessing.get_context("fork")
CANARY = {"token_ids": [1, 2, 3], "logprobs": [-1.0, -2.0]}
# `npm test` has one phase of each.
IN_EACH_PHASE = pytest.mark.parametrize(
    "phase", [pytest.param(phase, marks=pytest.mark.gate) if phase == UPDATE else phase for phase in PHASES]
)
STAND_IN = (sys.executable, stand_in_nccl.__file__)
PACK_BYTES = 400


class Pool:
    """Two engines with version 1 of a run. `request` publishes version 2."""

    def __init__(self, folder, backend):
        self.folder, self.backend = folder, backend
        for version in (1, 2):
            own = folder / f"v{version}"
            own.mkdir()
            Manifest("r", version, "k", None, None, {}, "c", f"w{version}", 0, {}, CANARY).write(own)
            tensors = {f"t{i}": torch.full((100,), float(version + i)) for i in range(4)}
            half = torch.full((3, 5), version, dtype=torch.bfloat16)
            save_file(tensors | {"half": half, "one": torch.tensor(version)}, own / "model.safetensors")
        self.digests = {version: digest_of_folder(folder / f"v{version}") for version in (1, 2)}
        self.engines = [ScriptedEngine(folder / f"{i}.sock", [-1.01, -2.02]) for i in range(2)]
        for engine in self.engines:
            engine.weights, engine.weight_version = self.digests[1], "r@1"
            engine.transfer = ScriptedTransfer(backend, GlooReceiver() if backend == "gloo" else NcclReceiver())
        self.checksums = {}

    def request(self, version=2, **more):
        before = {"weight_version": "r@1", "checkpoint": str(self.folder / "v1"), "checksums": self.checksums}
        return {
            "weight_version": f"r@{version}",
            "checkpoint": str(self.folder / f"v{version}"),
            "replicas": [engine.url for engine in self.engines],
            "min_replicas": 2,
            "canary": CANARY,
            "canary_tolerance": 0.02,
            "previous": before if version == 2 else None,
            "ready_seconds": 0.3,
            # On a busy machine, the two processes of the stand-in for NCCL take seconds to begin.
            "weight_broadcast": {"type": self.backend, "timeout": 60.0 if self.backend == "nccl" else 15.0},
        } | more

    async def publish(self, version=2, **more):
        return await publish_policy(self.request(version, **more), Progress())

    def has(self, version):
        found = [(e.weight_version, e.weights, e.paused) for e in self.engines]
        return found == [(f"r@{version}", self.digests[version], False)] * 2

    def require_no_wrong_label(self):
        """A weight version of the run stands for its weights, and no engine is paused."""
        for engine in self.engines:
            assert not engine.paused
            for version, digest in self.digests.items():
                assert engine.weight_version != f"r@{version}" or engine.weights == digest


@pytest.fixture
async def pool(request, tmp_path, monkeypatch):
    backend = getattr(request, "param", "gloo")
    monkeypatch.setattr(vllm_engine, "NOTICE_SECONDS", 2.0)
    if backend == "nccl":
        stand_in_nccl.install(monkeypatch.setattr)
        monkeypatch.setattr(NcclSender, "COMMAND", STAND_IN)
        monkeypatch.setattr(weight_sender, "BUFFER_BYTES", PACK_BYTES)
        monkeypatch.setenv("STAND_IN_BUFFER_BYTES", str(PACK_BYTES))
        monkeypatch.setenv("PYTHONPATH", str(Path(stand_in_nccl.__file__).parent))
    made = Pool(tmp_path, backend)
    async with AsyncExitStack() as stack:
        for engine in made.engines:
            await stack.enter_async_context(engine.running())
        first = await made.publish(version=1)
        assert first["published"], [each["error"] for each in first["replicas"]]
        made.checksums = {each["url"]: each["checksum"] for each in first["replicas"]}
        yield made


@pytest.mark.parametrize("pool", [pytest.param("gloo", marks=pytest.mark.gate), "nccl"], indirect=True)
async def test_weights_are_sent_and_no_engine_reads_the_folder(pool):
    result = await pool.publish()
    assert result["published"], [each["error"] for each in result["replicas"]]
    assert pool.has(2)
    for engine in pool.engines:
        assert engine.reloads == [] and engine.transfer.routes == list(PHASES)
        assert engine.weight_versions == ["loading:r@2", "r@2"]


@IN_EACH_PHASE
@pytest.mark.parametrize("kind", ["refuse", "break", "lose"])
async def test_when_one_engine_fails_in_a_phase_all_go_back_to_the_version_before(pool, phase, kind):
    pool.engines[1].transfer.fault = (phase, kind)
    result = await pool.publish()
    if (phase, kind) == (START, "lose"):
        # It is told to finish what it began, and begins again.
        assert result["published"] and pool.has(2)
        return
    assert not result["published"]
    assert phase in result["replicas"][1]["error"]
    assert pool.has(1)
    assert (await pool.publish())["published"] and pool.has(2)


@IN_EACH_PHASE
async def test_the_others_go_on_without_an_engine_that_dies_in_a_phase_and_it_gets_the_weights_when_it_is_back(
    pool, phase
):
    dying = pool.engines[1]

    def die():
        dying.dead = True
        raise ConnectionResetError

    dying.transfer.fault, dying.transfer.called = (phase, "call"), die
    result = await pool.publish(min_replicas=1)
    assert result["published"]
    assert [each["ok"] for each in result["replicas"]] == [True, False]
    # It starts anew.
    dying.dead, dying.paused, dying.weights, dying.weight_version = False, False, "base", "default"
    dying.transfer = ScriptedTransfer("gloo", GlooReceiver())
    checksum = result["replicas"][0]["checksum"]
    mended = await pool.publish(replicas=[dying.url], min_replicas=0, previous=None, checksum=checksum)
    assert mended["replicas"][0]["ok"] and pool.has(2)


async def test_an_engine_that_leaves_in_the_middle_of_the_tensors_keeps_the_weights_it_had(pool):
    pool.engines[1].transfer.fault = (UPDATE, "leave")
    assert not (await pool.publish())["published"]
    assert pool.has(1)


@IN_EACH_PHASE
async def test_a_publication_that_is_cancelled_in_a_phase_leaves_no_engine_paused_and_no_wrong_label(pool, phase):
    pool.engines[1].transfer.fault = (phase, "wait")
    task = asyncio.create_task(pool.publish())
    async with asyncio.timeout(60):
        while phase not in pool.engines[1].transfer.routes:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    pool.require_no_wrong_label()
    assert pool.engines[1].weight_version == "loading:r@2"
    assert (await pool.publish())["published"] and pool.has(2)


@IN_EACH_PHASE
async def test_after_a_publisher_was_killed_in_a_phase_the_next_publication_ends_what_it_left(pool, phase):
    """Temporal tries the activity again in the next GPU worker."""
    request = pool.request()
    process = FORK.Process(target=lambda: asyncio.run(publish_policy(request, Progress())))
    transfer = pool.engines[1].transfer
    transfer.fault, transfer.called = (phase, "call"), lambda: os.kill(process.pid, signal.SIGKILL)
    process.start()
    async with asyncio.timeout(60):
        while process.is_alive():
            await asyncio.sleep(0.02)
    assert process.exitcode == -signal.SIGKILL
    assert pool.engines[1].paused and pool.engines[1].weight_version == "loading:r@2"
    for engine in pool.engines:
        assert engine.weight_version != "r@2" or engine.weights == pool.digests[2]
    result = await pool.publish()
    assert result["published"], [each["error"] for each in result["replicas"]]
    assert pool.has(2)


async def test_an_engine_goes_on_while_its_sender_starts(pool, monkeypatch):
    paused = []

    class Sender(GlooSender):
        def __init__(self, *given):
            paused.append([engine.paused for engine in pool.engines])
            super().__init__(*given)

    monkeypatch.setitem(vllm_engine.SENDERS, "gloo", Sender)
    result = await pool.publish(replicas=[pool.engines[0].url], min_replicas=1)
    assert result["published"]
    assert paused == [[False, False]]


async def test_a_sender_of_nccl_that_does_not_start_is_ended_and_the_engine_keeps_its_version(pool, monkeypatch):
    for engine in pool.engines:
        engine.transfer.backend = "nccl"
    monkeypatch.setattr(NcclSender, "COMMAND", (sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(weight_sender, "START_SECONDS", 0.2)
    result = await pool.publish(weight_broadcast={"type": "nccl", "timeout": 5.0}, previous=None)
    assert ["its weights cannot be sent" in each["error"] for each in result["replicas"]] == [True, True]
    pool.require_no_wrong_label()


async def test_an_engine_that_does_not_answer_within_the_timeout_fails_and_is_not_left_paused(pool):
    pool.engines[1].transfer.fault = (UPDATE, "wait")
    result = await pool.publish(weight_broadcast={"type": "gloo", "timeout": 0.5})
    assert not result["published"] and "Timeout" in result["replicas"][1]["error"]
    pool.require_no_wrong_label()


@pytest.mark.gate
async def test_weights_that_did_not_arrive_are_caught_by_their_checksum(pool, monkeypatch):
    receive = GlooReceiver.receive

    def lose(receiver, info, most):
        receive(receiver, info, most)

    monkeypatch.setattr(GlooReceiver, "receive", lose)
    result = await pool.publish()
    assert not result["published"]
    assert "did not arrive" in result["replicas"][0]["error"]
    assert all(engine.weight_version.startswith(("unconfirmed:", "r@1")) for engine in pool.engines)
    pool.require_no_wrong_label()


async def test_auto_loads_from_the_folder_when_a_transfer_failed_and_filesystem_never_sends(pool):
    one = pool.engines[:1]
    pool.engines[0].transfer.fault = (INIT, "refuse")
    given = {"replicas": [one[0].url], "min_replicas": 1}
    result = await pool.publish(**given, weight_broadcast={"type": "auto", "timeout": 5.0})
    assert result["published"] and one[0].reloads == [str(pool.folder / "v2")]
    assert one[0].transfer.routes == [INIT, FINISH, SHUTDOWN]
    one[0].transfer.routes.clear()
    result = await pool.publish(1, **given, weight_broadcast={"type": "filesystem"})
    assert result["published"] and one[0].reloads[1:] == [str(pool.folder / "v1")]
    assert one[0].transfer.routes == []


@pytest.mark.parametrize(("backend", "how"), [("nccl", '{"backend": "gloo"}'), (None, "--worker-extension-cls")])
async def test_an_engine_that_was_started_to_receive_in_another_way_is_refused_with_how_to_start_it(pool, backend, how):
    for engine in pool.engines:
        engine.transfer = ScriptedTransfer(backend, GlooReceiver()) if backend else None
    with pytest.raises(GpuWorkerError) as caught:
        await pool.publish()
    assert caught.value.kind == "EngineWithoutTransfer" and not caught.value.retryable
    assert how in str(caught.value)
    assert pool.has(1)


@pytest.mark.parametrize("pool", ["nccl"], indirect=True)
async def test_a_sender_of_nccl_that_is_killed_fails_the_engines_and_all_go_back(pool, monkeypatch):
    began = []
    start = NcclSender.__init__

    def kept(sender, *given):
        start(sender, *given)
        began.append(sender)

    monkeypatch.setattr(NcclSender, "__init__", kept)
    transfer = pool.engines[1].transfer
    # Its connections end, as those of a killed process do.
    transfer.fault, transfer.called = (UPDATE, "call"), lambda: [each.stop() for each in began[:2]]
    result = await pool.publish()
    assert not result["published"]
    # Either side may notice the end first, and each says it in its own words.
    assert all(each["error"] for each in result["replicas"])
    assert UPDATE in "".join(each["error"] for each in result["replicas"])
    assert pool.has(1)


@pytest.mark.parametrize("pool", ["nccl"], indirect=True)
async def test_a_machine_without_a_gpu_says_so_and_the_engines_keep_their_version(pool, monkeypatch):
    monkeypatch.setattr(NcclSender, "COMMAND", (sys.executable, "-m", "trialgate_gpu.nccl_process"))
    result = await pool.publish(replicas=[pool.engines[0].url], min_replicas=1, previous=None)
    assert not result["published"]
    assert "weights cannot be sent" in result["replicas"][0]["error"] or "NCCL" in result["replicas"][0]["error"]
    pool.require_no_wrong_label()
