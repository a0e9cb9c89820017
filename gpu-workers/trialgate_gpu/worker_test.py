import asyncio
import logging
import socket
import urllib.request

import pytest
from temporalio.testing import ActivityEnvironment

from .backends.backend import TrainerBackend
from .engine import FETCH_CHECKPOINT
from .errors import Cancelled, GpuWorkerError
from .progress import Progress
from .worker import Activities, runtime_of


class Backends:
    """Gives every request to one trainer."""

    def __init__(self, backend):
        self.backend = backend

    def of(self, _):
        return self.backend


class SomeTrainer(TrainerBackend):
    name = "some"

    async def call(self, name, request, progress):
        progress.show("train", pack=2, packs=7, tokens=41_022)
        return {"metrics": {"perf/mfu/actor": 0.31234, "timing_s/step": 12.5, "train/groups": 4}}

    async def end(self):
        pass


def test_the_workers_log_has_the_progress_inside_a_step_and_its_figures_at_the_end(caplog):
    activities = Activities(Backends(SomeTrainer()))
    with caplog.at_level(logging.INFO, logger="trialgate.gpu"):
        asyncio.run(ActivityEnvironment().run(activities.train_step, {"run_id": "run", "version": 3, "trainer": {}}))
    said = [record.message.split(" of ", 1)[1] for record in caplog.records]
    assert said == [
        "run@3: train, pack 2 of 7, 41,022 tokens",
        "run@3 is done, perf/mfu/actor 0.3123, timing_s/step 12.5",
    ]


ANSWERS = {
    FETCH_CHECKPOINT: '{"ready": false}',
    "/weight_info": '{"weight_version": "slow@0"}',
    "/server_info": '{"vllm_config": {"parallel_config": {}, "device_config": {"device": "cuda"}}}',
}


async def test_a_publication_whose_relay_worker_still_fetches_lets_the_publications_of_other_runs_go_first(monkeypatch):
    asked = []

    async def relay_worker(reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1].removeprefix("/relay/workers/w1")
        asked.append(path)
        body = ANSWERS.get(path.split("?")[0], "{}")
        writer.write(f"HTTP/1.1 200 X\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    of = {"min_replicas": 1, "canary": {"token_ids": [1], "logprobs": []}, "ready_seconds": 0.0}
    slow = {"weight_version": "slow@1", "checkpoint": "/checkpoints/s1", "replicas": ["relay:w1"]} | of
    other = {"weight_version": "other@1", "checkpoint": "/checkpoints/o1", "replicas": ["http://127.0.0.1:1"]} | of
    activities = Activities(Backends(SomeTrainer()))
    async with await asyncio.start_server(relay_worker, "127.0.0.1", 0) as server:
        monkeypatch.setenv("TRIALGATE_RELAY_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        monkeypatch.setenv("TRIALGATE_RELAY_KEY", "key")
        fetching = Progress()
        waiting = asyncio.ensure_future(activities._publish(slow, fetching))
        while FETCH_CHECKPOINT not in asked and not waiting.done():
            await asyncio.sleep(0.01)
        # It has its turn, and there finds that its checkpoint is not there.
        with pytest.raises(GpuWorkerError, match="/checkpoints/o1 is not there"):
            await activities._publish(other, Progress())
        assert not waiting.done()
        fetching.cancel()
        with pytest.raises(Cancelled):
            await waiting
    assert not any(path.startswith("/pause") for path in asked)


def test_a_worker_answers_prometheus_where_it_is_told_to_and_a_taken_port_is_refused():
    assert runtime_of(None)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        held.listen()
        with pytest.raises(GpuWorkerError, match="--metrics-address: nothing can listen on") as refused:
            runtime_of(address)
        assert refused.value.kind == "BadSettings"
    runtime = runtime_of(address)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        assert answer.status == 200
    del runtime
