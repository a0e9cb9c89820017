"""Tests the publication of LoRA adapters against scripted engines."""

import hashlib
from contextlib import AsyncExitStack
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import save

from scripted_engine import ScriptedEngine
from scripted_sglang import ScriptedSglang

from . import target
from .errors import GpuWorkerError
from .lora import Lora
from .manifest import ADAPTER, BASE, Manifest
from .progress import Progress
from .publish import publish_policy

OF_BASE, OF_ADAPTER = [-1.01, -2.02], [-1.51, -2.52]
CANARIES = [{"token_ids": [1, 2, 3], "logprobs": logprobs} for logprobs in ([-1.0, -2.0], [-1.5, -2.5])]


def make_checkpoint(folder, version):
    folder.mkdir()
    lora_b = torch.full((2, 2), float(version))
    content = save({"base_model.model.q_proj.lora_B.weight": lora_b})
    (folder / ADAPTER).write_bytes(content)
    sha = hashlib.sha256(content).hexdigest()
    files = {ADAPTER: sha, f"{BASE}/model.safetensors": "b"}
    canary = CANARIES[min(version, 1)]
    lora = asdict(Lora(8, 16.0, "all-linear", 0))
    Manifest("r", version, "k", None, None, files, f"c{version}", sha, 0, {}, canary, lora=lora).write(folder)


@pytest.fixture(params=[ScriptedEngine, ScriptedSglang], ids=["vllm", "sglang"])
async def pool(request, tmp_path):
    """Yields two running replicas of a run that has published nothing, and the folder of its versions 0 to 3."""
    for version in range(4):
        make_checkpoint(tmp_path / f"v{version}", version)
    async with AsyncExitStack() as stack:
        engines = [request.param(tmp_path / f"{i}.sock", OF_BASE) for i in range(2)]
        for engine in engines:
            engine.max_lora_rank, engine.adapter_logprobs = 8, OF_BASE
            await stack.enter_async_context(engine.running())
        yield engines, tmp_path


async def publish(engines, folder, version, min_replicas=2, previous=None, **more):
    """Publishes a version. From version 1 on the adapter's canary differs from the base's."""
    for engine in engines:
        engine.adapter_logprobs = OF_ADAPTER if version > 0 else OF_BASE
    before = (
        None if previous is None else {"weight_version": f"r@{previous}", "checkpoint": str(folder / f"v{previous}")}
    )
    request = {
        "weight_version": f"r@{version}",
        "checkpoint": str(folder / f"v{version}"),
        "replicas": [engine.url for engine in engines],
        "min_replicas": min_replicas,
        "canary": CANARIES[min(version, 1)],
        "canary_tolerance": 0.02,
        "previous": before,
        "ready_seconds": 0.3,
    } | more
    return await publish_policy(request, Progress())


def names(engines):
    return [list(engine.adapters) for engine in engines]


async def test_an_adapter_is_loaded_beside_the_ones_before_under_a_name_of_its_own_and_no_engine_is_paused(pool):
    engines, folder = pool
    first = await publish(engines, folder, 0)
    assert first["published"] and [(e.weights, e.pauses) for e in engines] == [(str(folder / "v0" / BASE), 1)] * 2
    assert all(engine.weight_version.startswith("base:") for engine in engines)
    second = await publish(engines, folder, 1, previous=0, keep=["r@0"])
    assert second["published"] and [r["weight_version"] for r in second["replicas"]] == ["r@1"] * 2
    assert names(engines) == [["r@0", "r@1"]] * 2
    assert [engine.adapters["r@1"] for engine in engines] == [str(folder / "v1")] * 2
    assert [(engine.pauses, len(engine.reloads)) for engine in engines] == [(1, 1)] * 2
    assert first["replicas"][0]["checksum"] != second["replicas"][0]["checksum"]


async def test_a_publication_unloads_the_adapters_that_are_not_to_be_kept_and_none_that_is_no_version_of_a_run(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    for engine in engines:
        engine.adapters |= {"other@7": "/other", "house-style": "/somebody", "me@home": "/somebody"}
    await publish(engines, folder, 1, previous=0, keep=["r@0"])
    await publish(engines, folder, 2, previous=1, keep=["r@1"])
    assert [set(each) for each in names(engines)] == [{"house-style", "me@home", "r@1", "r@2"}] * 2


async def test_a_publication_does_not_load_an_adapter_again_that_a_replica_has(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    await publish(engines, folder, 1)
    again = await publish(engines, folder, 1)
    assert again["published"] and [engine.adapter_loads for engine in engines] == [["r@0", "r@1"]] * 2


async def test_an_engine_that_restarted_without_its_adapters_gets_base_and_adapter_again(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    await publish(engines, folder, 1, previous=0, keep=["r@0"])
    engines[0].adapters.clear()
    engines[0].weight_version = "default"
    assert (await publish(engines, folder, 1, previous=0, keep=["r@0"]))["published"]
    assert names(engines) == [["r@1"], ["r@0", "r@1"]]
    assert [len(engine.reloads) for engine in engines] == [2, 1]


async def test_an_adapter_over_another_base_is_not_taken_for_the_version(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    await publish(engines, folder, 1, previous=0)
    engines[0].weight_version, engines[0].weights = "full@3", "/full"
    assert (await publish(engines, folder, 1, previous=0))["published"]
    assert engines[0].weights == str(folder / "v1" / BASE) and engines[0].weight_version.startswith("base:")


async def test_a_replica_that_lists_an_adapter_and_answers_as_its_base_counts_as_failed_however_small_the_step(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    # Within the canary's tolerance.
    canary = {"token_ids": [1, 2, 3], "logprobs": [-1.011, -2.021]}
    engines[1].dropped_adapters.append("r@1")
    result = await publish(engines[1:], folder, 1, 1, previous=0, canary=canary)
    assert not result["published"] and "it dropped the adapter" in result["replicas"][0]["error"]
    assert names(engines[1:]) == [["r@0"]]


async def test_a_replica_that_cannot_load_an_adapter_keeps_the_one_before_and_below_min_replicas_all_do(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    await publish(engines, folder, 1, previous=0, keep=["r@0"])
    engines[1].adapter_loads_that_fail.append("r@2")
    result = await publish(engines, folder, 2, previous=1, keep=["r@1"])
    assert not result["published"]
    assert [r["weight_version"] for r in result["replicas"]] == ["r@1"] * 2
    assert [engine.adapters["r@1"] for engine in engines] == [str(folder / "v1")] * 2
    assert "deserializing" in result["replicas"][1]["error"]
    assert [engine.pauses for engine in engines] == [1, 1]


async def test_a_replica_whose_adapter_has_another_canary_fails_alone_when_min_replicas_confirmed(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    engines[0].logprobs = [-5.0, -5.0]
    engines[0].dropped_adapters.append("r@1")
    result = await publish(engines, folder, 1, 1, previous=0, keep=["r@0"])
    assert result["published"] and [r["ok"] for r in result["replicas"]] == [False, True]
    assert names(engines) == [["r@0"], ["r@0", "r@1"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_lora_rank": None}, "was started without LoRA.*--enable-lora --max-lora-rank 8"),
        ({"max_lora_rank": 4}, "takes adapters of rank 4 at most, not 8.*--max-lora-rank 8"),
    ],
)
async def test_a_publication_to_an_engine_that_cannot_take_the_adapter_is_refused_and_says_how_to_start_it(
    pool, change, message
):
    engines, folder = pool
    for engine in engines:
        vars(engine).update(change)
    with pytest.raises(GpuWorkerError, match=message) as caught:
        await publish(engines, folder, 0)
    assert (caught.value.kind, caught.value.retryable) == ("EngineWithoutLora", False)
    assert [(engine.weights, engine.pauses) for engine in engines] == [("base", 0)] * 2


@pytest.mark.parametrize("pool", [ScriptedEngine], indirect=True)
async def test_a_vllm_that_loads_no_adapters_while_it_runs_is_refused_with_the_variable_that_it_lacks(pool):
    engines, folder = pool
    engines[0].loads_adapters = False
    with pytest.raises(GpuWorkerError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"):
        await publish(engines, folder, 0)


@pytest.mark.parametrize("pool", [ScriptedSglang], indirect=True)
async def test_a_publication_ends_although_an_engine_waits_for_the_calls_of_an_older_adapter(pool, monkeypatch):
    monkeypatch.setattr(target, "UNLOAD_SECONDS", 0.1)
    engines, folder = pool
    await publish(engines, folder, 0)
    await publish(engines, folder, 1, previous=0, keep=["r@0"])
    engines[0].routes_that_wait.append("/unload_lora_adapter")
    # Without its end it would wait for `WORK_SECONDS`, a quarter of an hour.
    assert (await publish(engines, folder, 2, previous=1, keep=["r@1"]))["published"]
    assert names(engines) == [["r@0", "r@1", "r@2"], ["r@1", "r@2"]]
    engines[0].routes_that_wait.clear()
    await publish(engines, folder, 3, previous=2, keep=["r@2"])
    assert names(engines) == [["r@2", "r@3"]] * 2


@pytest.mark.parametrize("pool", [ScriptedEngine], indirect=True)
async def test_a_vllm_whose_connection_breaks_when_it_is_asked_whether_it_loads_adapters_fails_alone(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    engines[1].routes_that_break.append("/v1/load_lora_adapter")
    result = await publish(engines, folder, 1, 1, previous=0, keep=["r@0"])
    assert result["published"] and [r["ok"] for r in result["replicas"]] == [True, False]
    assert "POST /v1/load_lora_adapter" in result["replicas"][1]["error"]


@pytest.mark.parametrize("pool", [ScriptedSglang], indirect=True)
async def test_an_sglang_whose_connection_breaks_when_it_is_asked_whether_it_is_paused_gets_its_weights_again(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    engines[1].routes_that_break.append("/ready")
    assert (await publish(engines, folder, 0))["published"]
    assert [engine.adapter_loads for engine in engines] == [["r@0"], ["r@0", "r@0"]]


async def test_an_adapter_whose_file_is_torn_is_loaded_nowhere(pool):
    engines, folder = pool
    await publish(engines, folder, 0)
    (folder / "v1" / ADAPTER).write_bytes(b"torn")
    with pytest.raises(GpuWorkerError, match="does not have the sha256 of its manifest"):
        await publish(engines, folder, 1, previous=0)
    assert names(engines) == [["r@0"]] * 2
