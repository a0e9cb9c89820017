"""Tests what the publisher asks of a relay worker before it loads weights into the engine behind it."""

import asyncio
import json
import re
from contextlib import asynccontextmanager

import pytest

from .engine import EngineError
from .errors import Cancelled
from .progress import Progress
from .target import Target
from .vllm_engine import VllmEngine


@pytest.fixture
def gateway(monkeypatch):
    """Returns a context with the requests that a gateway got. It answers them with what it is given, in this order."""

    @asynccontextmanager
    async def answering(*answers):
        asked, waiting = [], list(answers)

        async def connection(reader, writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])
            asked.append((head.split()[1], json.loads(await reader.readexactly(length) or "null")))
            status, body = waiting.pop(0)
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(connection, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            monkeypatch.setenv("TRIALGATE_RELAY_URL", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("TRIALGATE_RELAY_KEY", "key")
            yield asked

    return answering


class VllmOfNoRun(VllmEngine):
    async def require(self, *_):
        """Takes the weights of any trainer."""

    async def prepare_reload(self, _):
        """Needs no preparation."""


async def fetch():
    async with VllmEngine("relay:w1") as engine:
        await engine.fetch_checkpoint("/checkpoints/v1")


async def test_the_publisher_asks_until_the_checkpoint_is_there(gateway):
    async with gateway((200, '{"ready": false}'), (200, '{"ready": false}'), (200, '{"ready": true}')) as asked:
        await fetch()
    assert asked == [("/relay/workers/w1/trialgate/checkpoint", {"path": "/checkpoints/v1"})] * 3


class CancelledAt(Progress):
    """Is cancelled at the check of this number."""

    def __init__(self, number):
        super().__init__()
        self.left = number

    def check(self):
        self.left -= 1
        if self.left == 0:
            self.cancel()
        super().check()


@pytest.mark.parametrize("number", [2, 3])
async def test_a_cancelled_publication_ends_while_a_checkpoint_is_fetched_and_pauses_no_engine(gateway, number):
    answers = (200, '{"ready": false}'), (200, '{"ready": true}')
    async with gateway(*answers) as asked, VllmOfNoRun("relay:w1") as engine:
        with pytest.raises(Cancelled):
            await Target("r@1", "/checkpoints/v1", "model").load_into(engine, None, CancelledAt(number).check)
    assert asked == [("/relay/workers/w1/trialgate/checkpoint", {"path": "/checkpoints/v1"})] * (number - 1)


async def test_the_version_before_is_fetched_too_before_the_pause_and_a_load_does_without_it(gateway):
    gone = (503, '{"error": {"message": "it was removed"}}')
    older, newer = (Target(f"r@{version}", f"/checkpoints/v{version}", "model") for version in (1, 2))
    answers = gone, (200, '{"ready": true}'), (500, ""), (200, "")
    async with gateway(*answers) as asked, VllmOfNoRun("relay:w1") as engine:
        with pytest.raises(EngineError, match="/pause"):
            await newer.load_into(engine, older)
    assert [(path.split("/")[4].split("?")[0], body and body["path"]) for path, body in asked] == [
        ("trialgate", "/checkpoints/v1"),
        ("trialgate", "/checkpoints/v2"),
        ("pause", None),
        ("resume", None),
    ]


async def test_a_worker_of_an_older_release_fetches_nothing(gateway):
    async with gateway((403, '{"error": {"message": "this relay worker passes on no POST"}}')) as asked:
        await fetch()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"error": {"message": "the disk of the relay worker is full"}}', "^the disk of the relay worker is full$"),
        ("<html>", "/trialgate/checkpoint answered 503: <html>"),
    ],
)
async def test_the_reason_why_a_checkpoint_cannot_be_fetched_reaches_the_publication(gateway, body, expected):
    async with gateway((503, body)):
        with pytest.raises(EngineError, match=expected):
            await fetch()


async def test_an_engine_that_is_reached_directly_is_asked_for_nothing():
    await VllmEngine("http://127.0.0.1:1").fetch_checkpoint("/checkpoints/v1")


@pytest.mark.parametrize("body", ["<html>", "[]", "{}"])
async def test_an_answer_that_is_not_the_relay_workers_fails_this_replica_alone(gateway, body):
    async with gateway((200, body)):
        with pytest.raises(EngineError, match="did not say whether it has /checkpoints/v1"):
            await fetch()
