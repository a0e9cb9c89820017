import asyncio
import json
import re
from contextlib import AsyncExitStack

import pytest

from scripted_engine import ScriptedEngine
from scripted_sglang import ScriptedSglang

from .errors import GpuWorkerError
from .manifest import Manifest
from .progress import Progress
from .publish import allowed_difference, publish_policy

CANARY = {"token_ids": [1, 2, 3], "logprobs": [-1.0, -2.0]}


@pytest.fixture(params=[ScriptedEngine, ScriptedSglang], ids=["vllm", "sglang"])
async def pool(request, tmp_path):
    """Yields two running replicas with version 1, the folder of versions 1 and 2, and version 1 as `previous`."""
    for version in (1, 2):
        folder = tmp_path / f"v{version}"
        folder.mkdir()
        Manifest("r", version, "k", None, None, {}, "c", f"w{version}", 0, {}, CANARY).write(folder)
    async with AsyncExitStack() as stack:
        engines = [request.param(tmp_path / f"{i}.sock", [-1.01, -2.02]) for i in range(2)]
        for engine in engines:
            engine.weights, engine.weight_version = str(tmp_path / "v1"), "r@1"
            await stack.enter_async_context(engine.running())
        checksums = (await publish(engines, tmp_path, version=1))["checksums"]
        for engine in engines:
            engine.reloads.clear(), engine.weight_versions.clear()
        yield engines, tmp_path, {"weight_version": "r@1", "checkpoint": str(tmp_path / "v1"), "checksums": checksums}


async def publish(engines, folder, version=2, min_replicas=2, previous=None, **more):
    request = {
        "weight_version": f"r@{version}",
        "checkpoint": str(folder / f"v{version}"),
        "replicas": [engine.url for engine in engines],
        "min_replicas": min_replicas,
        "canary": CANARY,
        "canary_tolerance": 0.02,
        "previous": previous,
        "ready_seconds": 0.3,
    } | more
    result = await publish_policy(request, Progress())
    return result | {"checksums": {r["url"]: r["checksum"] for r in result["replicas"]}}


async def test_after_a_publication_every_replica_has_the_new_version_and_answers_calls(pool):
    engines, folder, previous = pool
    result = await publish(engines, folder, previous=previous)
    assert result["published"] and all(r["ok"] for r in result["replicas"])
    assert [(e.weight_version, e.weights, e.paused) for e in engines] == [("r@2", str(folder / "v2"), False)] * 2
    assert result["replicas"][0]["canary_difference"] == pytest.approx(0.015)


async def test_a_publication_does_not_load_weights_into_a_replica_that_already_has_the_version(pool):
    engines, folder, previous = pool
    await publish(engines, folder, previous=previous)
    again = await publish(engines, folder, previous=previous)
    assert again["published"] and [len(e.reloads) for e in engines] == [1, 1]


async def test_a_cancelled_publication_leaves_no_weight_version_and_the_next_one_resumes_the_replicas(pool):
    engines, folder, previous = pool
    for engine in engines:
        engine.reload_seconds = 60
    task = asyncio.create_task(publish(engines, folder, previous=previous))
    while not all(engine.reloads for engine in engines):
        await asyncio.sleep(0.01)
    assert [engine.weight_version for engine in engines] == ["loading:r@2"] * 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not any(engine.paused for engine in engines)
    for engine in engines:
        engine.paused, engine.reload_seconds = True, 0
    await publish(engines, folder, previous=previous)
    assert [(e.weight_version, e.paused) for e in engines] == [("r@2", False)] * 2


async def test_a_publication_resumes_a_paused_replica_that_already_has_the_new_weight_version(pool):
    engines, folder, previous = pool
    await publish(engines, folder, previous=previous)
    engines[0].paused = True
    assert (await publish(engines, folder, previous=previous))["published"]
    assert not engines[0].paused and len(engines[0].reloads) == 1


async def test_a_replica_that_fails_to_load_a_version_gets_the_one_before_and_below_min_replicas_all_do(pool):
    engines, folder, previous = pool
    engines[1].reloads_that_fail.append(str(folder / "v2"))
    result = await publish(engines, folder, previous=previous)
    assert not result["published"]
    assert [(e.weight_version, e.weights, e.paused) for e in engines] == [("r@1", str(folder / "v1"), False)] * 2
    assert "fewer than 2 replicas" in result["replicas"][0]["error"]
    assert re.search("answered [45]00", result["replicas"][1]["error"])


async def test_a_replica_that_went_back_without_the_weights_of_the_version_before_loses_its_weight_version(pool):
    engines, folder, previous = pool
    engines[1].reloads_that_fail.append(str(folder / "v2"))
    for engine in engines:
        engine.reloads_that_do_nothing.append(str(folder / "v1"))
    result = await publish(engines, folder, previous=previous)
    assert not result["published"]
    assert [e.weight_version for e in engines] == ["unconfirmed:r@1"] * 2
    for replica in result["replicas"]:
        assert replica["weight_version"] == "unconfirmed:r@1"
        assert "could not go back: its tensors do not have the checksums of r@1" in replica["error"]


async def test_a_failed_replica_beside_confirmed_ones_keeps_the_version_before_only_with_its_weights(pool):
    engines, folder, previous = pool
    engines[1].reloads_that_fail.append(str(folder / "v2"))
    engines[1].reloads_that_do_nothing.append(str(folder / "v1"))
    result = await publish(engines, folder, min_replicas=1, previous=previous)
    assert result["published"]
    assert [engine.weight_version for engine in engines] == ["r@2", "unconfirmed:r@1"]


@pytest.mark.parametrize("min_replicas", [1, 2])
async def test_a_replica_that_does_not_say_which_tensors_it_went_back_to_loses_its_weight_version(pool, min_replicas):
    engines, folder, previous = pool
    engines[1].reloads_that_fail.append(str(folder / "v2"))
    engines[1].routes_that_break += ["/weight_checker", "/weights_checker"]
    result = await publish(engines, folder, min_replicas=min_replicas, previous=previous)
    assert engines[1].weight_version == result["replicas"][1]["weight_version"] == "unconfirmed:r@1"
    assert "could not go back: the checksums of its tensors cannot be read" in result["replicas"][1]["error"]


async def test_a_publication_succeeds_without_a_replica_that_failed_when_min_replicas_confirmed(pool):
    engines, folder, previous = pool
    engines[1].reloads_that_fail.append(str(folder / "v2"))
    result = await publish(engines, folder, min_replicas=1, previous=previous)
    assert result["published"] and [r["ok"] for r in result["replicas"]] == [True, False]
    assert [engine.weight_version for engine in engines] == ["r@2", "r@1"]


async def test_a_replica_whose_weights_did_not_change_by_loading_counts_as_failed_and_loses_the_weight_version(pool):
    engines, folder, previous = pool
    engines[1].reloads_that_do_nothing.append(str(folder / "v2"))
    result = await publish(engines, folder, min_replicas=1, previous=previous)
    assert "did not arrive" in result["replicas"][1]["error"]
    assert engines[1].weight_version == "unconfirmed:r@2"


async def test_a_replica_may_keep_its_checksum_when_the_new_versions_weights_equal_the_old_ones(pool):
    engines, folder, previous = pool
    Manifest("r", 2, "k", None, None, {}, "c", "w1", 0, {}, CANARY).write(folder / "v2")
    for engine in engines:
        engine.reloads_that_do_nothing.append(str(folder / "v2"))
    assert (await publish(engines, folder, previous=previous))["published"]


async def test_a_replica_whose_canary_differs_by_more_than_the_tolerance_counts_as_failed(pool):
    engines, folder, previous = pool
    engines[0].logprobs = [-1.5, -2.0]
    result = await publish(engines, folder, min_replicas=1, previous=previous)
    assert [r["ok"] for r in result["replicas"]] == [False, True]
    assert "canary differs" in result["replicas"][0]["error"]


async def test_one_token_of_a_long_canary_may_differ_much_without_failing_the_replica(pool):
    engines, folder, previous = pool
    canary = {"token_ids": list(range(1024)), "logprobs": [-2.0] * 1023}
    for engine in engines:
        engine.logprobs = [-3.5, *[-2.01] * 1022]
    result = await publish(engines, folder, previous=previous, canary=canary)
    assert result["published"]
    assert result["replicas"][0]["canary_difference"] == pytest.approx(0.01, abs=0.002)


async def test_a_replica_with_several_canary_tokens_that_differ_much_fails_although_the_mean_is_small(pool):
    engines, folder, previous = pool
    canary = {"token_ids": list(range(1024)), "logprobs": [-2.0] * 1023}
    for engine in engines:
        engine.logprobs = [*[-5.0] * 20, *[-2.0] * 1003]
    result = await publish(engines, folder, previous=previous, canary=canary, canary_tolerance=0.05)
    assert result["replicas"][0]["canary_difference"] < result["canary_allowed"]
    assert "by more than 1 nat at 20 of 1023 tokens" in result["replicas"][0]["error"]


async def test_a_replica_whose_context_is_shorter_than_the_canary_gets_the_canarys_beginning(pool):
    engines, folder, previous = pool
    canary = {"token_ids": [1, 2, 3, 4, 5], "logprobs": [-1.0, -2.0, -3.0, -4.0]}
    engines[0].logprobs, engines[0].max_model_len = [-1.01, -2.01, 0.0, 0.0], 4
    engines[1].logprobs = [-1.01, -2.01, -3.01, -4.01]
    result = await publish(engines, folder, previous=previous, canary=canary)
    assert result["published"]
    engines[0].logprobs[0] = -1.5
    assert not (await publish(engines[:1], folder, 2, 1, canary=canary))["published"]


@pytest.mark.parametrize(("of_run", "of_engine"), [("float32", {}), ("model", {"head_dtype": "float32"})])
async def test_a_publication_is_refused_when_only_the_trainer_or_only_the_replica_has_head_dtype_float32(
    pool, of_run, of_engine
):
    engines, folder, previous = pool
    for engine in engines:
        engine.hf_overrides = of_engine
    with pytest.raises(GpuWorkerError, match="set `head_dtype: float32`") as caught:
        await publish(engines, folder, previous=previous, head_dtype=of_run)
    assert (caught.value.kind, caught.value.retryable) == ("HeadDtypeDiffers", False)
    assert [(e.weight_version, e.weights, e.paused) for e in engines] == [("r@1", str(folder / "v1"), False)] * 2


async def test_a_publication_succeeds_when_trainer_and_replica_both_have_head_dtype_float32(pool):
    engines, folder, previous = pool
    for engine in engines:
        engine.hf_overrides = {"head_dtype": "float32"}
    assert (await publish(engines, folder, previous=previous, head_dtype="float32"))["published"]


@pytest.mark.parametrize("logprobs", [[float("nan"), -2.0], [-1.01, float("nan")]])
async def test_a_replica_whose_canary_is_not_finite_fails_and_leaves_no_nan_in_the_publications_result(pool, logprobs):
    engines, folder, previous = pool
    engines[0].logprobs = logprobs
    result = await publish(engines, folder, min_replicas=1, previous=previous)
    assert [r["ok"] for r in result["replicas"]] == [False, True]
    assert "canary is not finite" in result["replicas"][0]["error"]
    json.dumps(result, allow_nan=False)


async def test_a_replica_whose_checksum_differs_from_the_other_replicas_counts_as_failed(pool):
    engines, folder, previous = pool
    engines[1].reloads_that_do_nothing.append(str(folder / "v2"))
    engines[1].weights = "something else"
    result = await publish(engines, folder, min_replicas=1, previous=previous)
    assert sum(r["ok"] for r in result["replicas"]) == 1
    assert any("differ from the other" in (r["error"] or "") for r in result["replicas"])


async def test_a_repair_counts_a_replica_as_failed_whose_checksum_differs_from_the_recorded_one(pool):
    engines, folder, previous = pool
    published = await publish(engines, folder, previous=previous)
    expected = published["replicas"][0]["checksum"]
    engines[1].weight_version, engines[1].weights = "default", "base"
    engines[1].reloads_that_do_nothing.append(str(folder / "v2"))
    result = await publish(engines[1:], folder, min_replicas=0, checksum=expected)
    assert "differ from the other" in result["replicas"][0]["error"]
    assert engines[1].weight_version == "unconfirmed:r@2"
    engines[1].reloads_that_do_nothing.clear()
    assert (await publish(engines[1:], folder, min_replicas=0, checksum=expected))["replicas"][0]["ok"]
    assert [len(engine.reloads) for engine in engines] == [1, 3]


async def test_a_publication_reports_a_replica_that_it_could_not_reach_within_the_allowed_time(pool):
    engines, folder, previous = pool
    gone = ScriptedEngine(folder / "gone.sock", [])
    result = await publish([*engines, gone], folder, previous=previous)
    assert result["published"] and "not ready within" in result["replicas"][2]["error"]


@pytest.mark.parametrize("pool", [ScriptedEngine], indirect=True)
async def test_a_publication_to_a_vllm_without_control_routes_fails_and_says_how_to_start_vllm(pool):
    engines, folder, previous = pool
    engines[0].control_routes = engines[1].control_routes = False
    with pytest.raises(GpuWorkerError, match="VLLM_SERVER_DEV_MODE=1") as caught:
        await publish(engines, folder, previous=previous)
    assert not caught.value.retryable


@pytest.mark.parametrize("pool", [ScriptedEngine], indirect=True)
async def test_a_publication_to_a_vllm_on_cpu_without_trialgates_worker_extension_is_refused(pool):
    engines, folder, previous = pool
    engines[0].device = "cpu"
    with pytest.raises(GpuWorkerError, match="--worker-extension-cls"):
        await publish(engines, folder, previous=previous)
    assert [(e.weight_version, e.weights, e.paused) for e in engines] == [("r@1", str(folder / "v1"), False)] * 2


def test_the_canary_tolerance_is_twice_the_difference_of_version_0_within_bounds():
    assert [allowed_difference(seen) for seen in (None, 0.001, 0.1)] == pytest.approx([0.25, 0.02, 0.2])
