"""Tests that a real vLLM on CPU receives its weights from the publisher over TCP, without reading a disk."""

import asyncio
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from transformers import AutoTokenizer

from conftest import Run, two_groups
from real_engine import previous, publish, vllm
from shallow_model import cut

from .engine import EngineError
from .errors import GpuWorkerError
from .families_real_test import SERVED
from .families_test import TRAINED, make
from .progress import Progress
from .train_step_test import fresh
from .vllm_engine import VllmEngine
from .weight_sender import GlooSender

pytestmark = pytest.mark.real
SMALL = Path(__file__).parents[2] / ".trialgate" / "models" / "SmolLM2-135M-Instruct"
RECEIVES = ["--weight-transfer-config", '{"backend": "gloo"}']
SEQUENCE = [(11 * i) % 60 + 2 for i in range(100)]


def make_model(name: str, folder: Path) -> Path:
    if name == "a tied head":
        cut(SMALL, folder, 2)
        return folder
    settings = TRAINED["qwen3_moe"] | SERVED | {"vocab_size": 49152, "max_position_embeddings": 1024}
    make(folder, "qwen3_moe", settings, torch.bfloat16)
    AutoTokenizer.from_pretrained(SMALL).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["a tied head", "experts"])
def served(request, tmp_path_factory):
    """Yields an engine that receives weights, and the checkpoints of versions 0 and 1."""
    home = tmp_path_factory.mktemp("transfer")
    run, trainer = Run(home, make_model(request.param, home / "model")), fresh()
    base = run.base(trainer)
    made = trainer.train_step(run.request(base["checkpoint"], two_groups()), Progress())
    with vllm(run.model, home, "engine", more=RECEIVES) as url:
        yield url, [base, made]


@contextmanager
def no_disk():
    async def refuse(engine, checkpoint):
        raise EngineError("the engine's machine has no such folder")

    with patch.object(VllmEngine, "_load_from_disk", refuse):
        yield


@contextmanager
def breaking(after):
    """Ends the connection after some tensors, as happens when a publisher is killed. Yields the sent tensors."""
    send, sent, broke = GlooSender._send_one, [], []

    def broken(sender, tensor):
        if len(sent) == after and not broke:
            broke.append(tensor)
            raise RuntimeError("broken on purpose")
        sent.append(tensor)
        send(sender, tensor)

    with patch.object(GlooSender, "_send_one", broken):
        yield sent


async def seen(url):
    """Returns the checksum of the engine's tensors, and what it computes with them."""
    async with VllmEngine(url) as engine:
        version = await engine.weight_version()
        return version, await engine.checksum(), await engine.prompt_logprobs(SEQUENCE, version)


async def load_from_disk(url, checkpoints, version):
    async with VllmEngine(url) as engine:
        await engine.pause()
        await engine._load_from_disk(checkpoints[version]["checkpoint"])
        await engine.set_weight_version(f"run@{version}")
        await engine.resume()
    return await seen(url)


async def generation(url):
    async with VllmEngine(url) as engine:
        params = {"max_tokens": 400, "ignore_eos": True, "temperature": 1.0}
        body = {"model": "policy", "token_ids": [1, 2, 3, 4], "sampling_params": params}
        return (await engine._call("POST", "/inference/v1/generate", json=body)).json()["choices"][0]


async def test_weights_that_were_sent_are_those_that_the_disk_gives_and_requests_in_flight_go_on(served):
    url, checkpoints = served
    from_disk = [await load_from_disk(url, checkpoints, version) for version in (1, 0)]
    assert from_disk[0][1:] != from_disk[1][1:]
    with no_disk():
        flight = asyncio.create_task(generation(url))
        await asyncio.sleep(0.3)
        sent = await publish(url, 1, checkpoints[1], weight_broadcast={"type": "gloo"})
        assert sent["ok"], sent["error"]
        assert await seen(url) == from_disk[0]
        assert [span["version"] for span in (await flight)["weight_versions"]][-1] == "run@1"
        assert (await publish(url, 0, checkpoints[0]))["ok"]
        assert await seen(url) == from_disk[1]


@pytest.mark.parametrize("after", [0, 5])
async def test_an_engine_whose_transfer_broke_off_is_loaded_from_disk(served, after):
    url, checkpoints = served
    async with VllmEngine(url) as engine:
        await engine.set_weight_version("default")
    with breaking(after) as sent:
        report = await publish(url, 1, checkpoints[1])
    assert report["ok"] and len(sent) == after, report["error"]
    found = await seen(url)
    assert found == await load_from_disk(url, checkpoints, 1)


async def test_without_a_disk_half_a_transfer_leaves_the_engine_out_of_rotation_with_the_weights_it_had(served):
    url, checkpoints = served
    _, *had = await seen(url)
    with no_disk():
        with breaking(5):
            report = await publish(url, 0, checkpoints[0])
        assert not report["ok"] and "no such folder" in report["error"]
        async with VllmEngine(url) as engine:
            assert not await engine.is_paused()
        version, *there = await seen(url)
        assert version == "loading:run@0" and there == had
        again = await publish(url, 0, checkpoints[0])
        assert again["ok"], again["error"]
    found = await seen(url)
    assert found == await load_from_disk(url, checkpoints, 0)


async def test_by_gloo_alone_a_transfer_that_broke_off_gives_the_version_before_by_gloo_and_nothing_is_read(served):
    url, checkpoints = served
    given = {"weight_broadcast": {"type": "gloo"}, "min_replicas": 1}
    assert (await publish(url, 0, checkpoints[0], **given))["ok"]
    had = await seen(url)
    with no_disk():
        # The second transfer, of the version before, is whole.
        with breaking(5):
            report = await publish(url, 1, checkpoints[1], previous=previous(0, checkpoints[0]), **given)
        assert not report["ok"] and "went back to run@0" in report["error"]
        assert await seen(url) == had
        async with VllmEngine(url) as engine:
            assert not await engine.is_paused()
            # A publisher that is killed in its update leaves the engine in this state.
            await engine.pause()
            await engine.set_weight_version("loading:run@1")
            await engine._call("POST", "/start_weight_update")
        assert (await publish(url, 1, checkpoints[1], **given))["ok"]
        async with VllmEngine(url) as engine:
            assert not await engine.is_paused()
        with pytest.raises(GpuWorkerError, match="receive weights by gloo"):
            await publish(url, 0, checkpoints[0], weight_broadcast={"type": "nccl"})


async def test_an_update_that_its_publisher_never_sent_does_not_keep_the_engine_from_the_next_one(served):
    url, checkpoints = served
    async with VllmEngine(url) as engine:
        await engine._call("POST", "/start_weight_update")
    report = await publish(url, 1, checkpoints[1])
    assert report["ok"], report["error"]
    with no_disk():
        assert (await publish(url, 0, checkpoints[0]))["ok"]
