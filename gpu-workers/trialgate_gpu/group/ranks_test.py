"""Tests that several ranks make what one makes, whatever happens to one of them."""

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import make_tiny_model, row, two_groups

from ..checkpoint import load_state
from ..errors import Cancelled, GpuWorkerError
from ..families_test import TRAINED, make_multimodal
from ..families_test import make as make_family
from ..load_base import load_base
from ..manifest import read_manifest
from ..processes import is_alive
from ..progress import Progress
from ..tensor_file import read_tensor, stored_tensors
from ..train_step import Trainer
from . import group_test
from .backend import LocalBackend
from .group_test import LORA, base_request, held_pid, pids
from .placement import Placement
from .world import World

pytestmark = pytest.mark.processes
hold = group_test.hold
KINDS = pytest.mark.parametrize("settings", [{}, LORA], ids=["all weights", "LoRA"])
IN_FLOAT32 = ("--compute-dtype", "float32")
# Each rank would otherwise import everything anew, which takes longer than most of these tests.
options = partial(group_test.options, launch="{python} -m forked_ranks {ranks}")
with_backend = partial(group_test.with_backend, launch="{python} -m forked_ranks {ranks}")


def master_of(folder, dtype=torch.float32):
    """Returns the float32 master weights of a checkpoint, once its trainer state is written."""
    folder = Path(folder)
    state = load_state(folder, read_manifest(folder), Placement(torch.device("cpu"), World(), dtype), lambda: None)
    return state.policy.master


def wait_for_state(folder):
    deadline = time.monotonic() + 60
    while not (Path(folder) / "trainer" / "state.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lora_of(settings):
    return {name: value for name, value in settings.items() if name in LORA}


def steps_in_process(run, batches, dtype=torch.float32, **settings):
    trainer = Trainer(torch.device("cpu"), 64, dtype=dtype)
    made = [load_base(trainer, base_request(run, **lora_of(settings)), Progress())]
    for version, rows in enumerate(batches, 1):
        made.append(trainer.train_step(run.request(made[-1]["checkpoint"], rows, version, **settings), Progress()))
        trainer.settle()
    return made


async def steps_in_group(backend, run, batches, **settings):
    made = [await backend.load_base(base_request(run, **lora_of(settings)), Progress())]
    for version, rows in enumerate(batches, 1):
        request = run.request(made[-1]["checkpoint"], rows, version, **settings)
        made.append(await backend.train_step(request, Progress()))
        wait_for_state(made[-1]["checkpoint"])
    return made


def several_packs_of_one_prompt():
    return [row(list(range(3, 33)), [5 + i] * 30, i / 4, "g", f"t{i}") for i in range(4)]


def with_experts(rows):
    """Returns the rows with experts that the router of a tiny mixture (2 layers, 2 of 4 experts) would not choose."""
    made = []
    for each in rows:
        ids = np.array(each["token_ids"])[:-1]
        chosen = np.stack([np.stack([ids % 4, (ids + 1) % 4], -1)] * 2, 1).astype(np.uint8)
        recorded = {"start": 0, "end": len(ids), "form": "uint8", "rows": chosen.tobytes()}
        made.append(each | {"routed_experts": [recorded]})
    return made


BATCHES = {
    "a pack for each rank": (two_groups, {}),
    # All packs of the prompt are rank 0's: rank 1 has no trained token.
    "a prompt that several packs share": (several_packs_of_one_prompt, {}),
    # AdamW divides a gradient that is nothing but rounding by its own size, unless eps is larger.
    "several updates": (two_groups, {"ppo_mini_batch_size": 4, "ppo_epochs": 2, "optim": {"lr": 1e-2, "eps": 1e-6}}),
    "an engine's experts": (lambda: with_experts(several_packs_of_one_prompt()), {"enable_router_replay": True}),
    "an adapter": (two_groups, LORA),
    "an adapter of the last projections, behind a prompt that several packs share": (
        several_packs_of_one_prompt,
        LORA | {"target_modules": ["down_proj"]},
    ),
    "one sample a rank": (lambda: two_groups()[:2], {"optim": {"lr": 1e-2, "eps": 1e-6}}),
}
# Weights are in several files, and both ranks write some of them.
GROUPS = {"plain": (), "saving memory": ("--activation-checkpointing", "--cpu-offload")}


@pytest.fixture(scope="module", params=GROUPS)
def two_ranks(request, tmp_path_factory):
    """Gives a function that does asynchronous work with a backend of two ranks, which stay for the tests of this file.

    The function has the folder of `paused_rank.py` as its attribute `hold`.
    """
    hold = tmp_path_factory.mktemp("hold")
    (hold / "largest-file").write_text("8192")
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("TRIALGATE_HOLD", str(hold))
        backend = LocalBackend(options(ranks=2, more=(*IN_FLOAT32, *GROUPS[request.param])))

        def do(work):
            return runner.run(work(backend))

        do.hold = hold
        yield do
        runner.run(backend.end())


def weights_of(checkpoint):
    """Returns all tensors of a checkpoint's own files of weights, as one."""
    stored = stored_tensors(Path(checkpoint))
    return torch.cat([read_tensor(stored[name], name).float().flatten() for name in sorted(stored)])


@pytest.mark.parametrize(
    ("batch", "model"),
    [
        ("a pack for each rank", "tied"),
        ("a pack for each rank", "experts"),
        ("an engine's experts", "experts"),
        ("a pack for each rank", "multimodal"),
        ("an adapter", "multimodal"),
        ("a prompt that several packs share", "untied"),
        ("several updates", "tied"),
        ("one sample a rank", "untied"),
        ("an adapter", "tied"),
        ("an adapter of the last projections, behind a prompt that several packs share", "untied"),
    ],
)
def test_two_ranks_make_the_weights_of_one_process(make_run, two_ranks, tmp_path, batch, model):
    rows, settings = BATCHES[batch]
    alone, group = make_run("alone"), make_run("group")
    if model == "experts":
        folder = make_family(tmp_path / "model", "qwen3_moe", TRAINED["qwen3_moe"], torch.bfloat16)
    elif model == "multimodal":
        make_multimodal(folder := tmp_path / "model", "mistral3")
    else:
        # Two ranks cannot halve this vocabulary.
        folder = make_tiny_model(tmp_path / "model", vocab_size=65, tied=model == "tied")
    alone.model = group.model = folder
    # The order of mini-batches is drawn from the step's key, and so from the bits of the parent's weights.
    batches = [rows()] if settings.keys() - LORA else [rows(), rows()[::-1]]
    expected = steps_in_process(alone, batches, **settings)
    made = two_ranks(lambda backend: steps_in_group(backend, group, batches, **settings))
    for one, other in zip(expected[1:], made[1:], strict=True):
        for name in ("actor/pg_loss", "actor/grad_norm"):
            assert other["metrics"][name] == pytest.approx(one["metrics"][name], rel=2e-6, abs=1e-6)
        assert other["metrics"]["tokens/distinct"] == one["metrics"]["tokens/distinct"]
        assert one["metrics"]["perf/idle_share/max"] == 0 < other["metrics"]["perf/idle_share/mean"] < 1
    for read in (master_of, weights_of):
        start, one, other = (read(each["checkpoint"]) for each in (expected[0], expected[-1], made[-1]))
        assert (other - one).norm() <= 1e-5 * (one - start).norm()
    files = list(Path(made[-1]["checkpoint"]).glob("model-*.safetensors"))
    assert settings.keys() >= LORA.keys() or len(files) > 1


@pytest.mark.parametrize("more", [(), ("--cpu-offload",)], ids=["as it is", "offloading"])
async def test_ranks_that_train_in_bfloat16_check_a_new_model_in_float32(make_run, hold, tmp_path, more):
    run = make_run()
    run.model = make_tiny_model(tmp_path / "model")
    file = run.model / "model.safetensors"
    # The rounding of bfloat16 then moves log-probabilities by more than the check allows.
    save_file({name: each * (1 if "norm" in name else 20) for name, each in load_file(file).items()}, file)
    made = await with_backend(lambda backend: backend.load_base(base_request(run), Progress()), ranks=2, more=more)
    assert read_manifest(Path(made["checkpoint"])).metrics["self_check/packed_alone"] < 1e-3


@pytest.mark.parametrize("then", [("--cpu-offload",), ()], ids=["still offloading", "without it"])
def test_one_rank_that_offloads_makes_the_weights_of_one_that_does_not_and_another_process_goes_on_from_its_state(
    make_run, tmp_path, hold, then
):
    alone, offloading = make_run("alone"), make_run("offloading")
    alone.model = offloading.model = make_tiny_model(tmp_path / "model", vocab_size=65)
    batches = [two_groups(), two_groups()[::-1]]
    expected = steps_in_process(alone, batches)
    with asyncio.Runner() as runner:
        first, second = (LocalBackend(options(more=(*IN_FLOAT32, *each))) for each in (("--cpu-offload",), then))
        try:
            made = runner.run(steps_in_group(first, offloading, batches[:1]))
            runner.run(first.end())
            request = offloading.request(made[-1]["checkpoint"], batches[1], 2)
            made.append(runner.run(second.train_step(request, Progress())))
            wait_for_state(made[-1]["checkpoint"])
        finally:
            for backend in (first, second):
                runner.run(backend.end())
    start, one, other = (master_of(each["checkpoint"]) for each in (expected[0], expected[-1], made[-1]))
    assert (other - one).norm() <= 1e-5 * (one - start).norm()


IN_ONE_GROUP = pytest.mark.parametrize("two_ranks", ["plain"], indirect=True)


def names_in(run):
    return {path.name for path in (run.home / "checkpoints").iterdir()}


@IN_ONE_GROUP
def test_a_damaged_or_foreign_file_of_a_rank_is_refused_on_all_ranks_and_the_step_works_with_the_file_put_back(
    make_run, two_ranks
):
    run = make_run()

    async def work(backend):
        made = await steps_in_group(backend, run, [two_groups()] * 2, keep_checkpoints=9)
        one, two = (Path(each["checkpoint"]) for each in made[1:])
        before = names_in(run)
        request = run.request(str(one), two_groups()[::-1], 2, keep_checkpoints=9)
        part = one / "trainer" / "__1_0.distcp"
        whole, foreign = part.read_bytes(), (two / "trainer" / "__1_0.distcp").read_bytes()
        for bad in (whole[:-100], foreign):
            part.write_bytes(bad)
            with pytest.raises(GpuWorkerError, match=r"__1_0\.distcp does not have the sha256") as caught:
                await backend.train_step(request, Progress())
            assert (caught.value.kind, caught.value.retryable) == ("CorruptCheckpoint", False)
            assert names_in(run) == before
        part.write_bytes(whole)
        assert not (await backend.train_step(request, Progress()))["reused"]

    two_ranks(work)


@IN_ONE_GROUP
@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [("disk", "DiskFull", "disk full: .*checkpoints has"), ("memory", "OutOfMemory", "memory is full")],
)
def test_a_rank_whose_disk_or_memory_is_full_ends_the_step_with_its_reason_and_leaves_nothing(
    make_run, two_ranks, fault, kind, reason
):
    run = make_run()

    async def work(backend):
        await backend.load_base(base_request(run), Progress())
        base = run.home / "checkpoints" / names_in(run).pop()
        (two_ranks.hold / f"1-{fault}").touch()
        with pytest.raises(GpuWorkerError, match=reason) as caught:
            await backend.train_step(run.request(str(base), two_groups()), Progress())
        assert (caught.value.kind, caught.value.retryable) == (kind, False)
        assert names_in(run) == {base.name}

    two_ranks(work)


# `bench/trainer_ranks.py` does every phase, both ranks and both signals many times.
LOST = [
    ("load", 0, signal.SIGKILL),
    pytest.param("backward", 1, signal.SIGKILL, marks=pytest.mark.gate),
    ("write", 0, signal.SIGKILL),
    ("optimizer", 1, signal.SIGSTOP),
]


@pytest.mark.parametrize(("phase", "rank", "how"), LOST)
def test_a_step_whose_rank_is_killed_or_stopped_can_be_done_again_with_the_same_weights(
    make_run, hold, phase, rank, how
):
    run = make_run()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        request = run.request(base["checkpoint"], two_groups())
        if phase == "load":
            await backend.end()
        (hold / f"{rank}-{phase}").touch()
        step = asyncio.ensure_future(backend.train_step(request, Progress()))
        pid = await held_pid(hold)
        before = pids(backend)
        os.kill(pid, how)
        with pytest.raises(GpuWorkerError, match=f"rank {rank}|ended") as caught:
            await asyncio.wait_for(step, 60)
        assert (caught.value.kind, caught.value.retryable) == ("RankLost", True)
        assert [each for each in before if is_alive(each)] == []
        assert [p.name for p in (run.home / "checkpoints").iterdir()] == [Path(base["checkpoint"]).name]
        made = await backend.train_step(request, Progress())
        wait_for_state(made["checkpoint"])
        return master_of(made["checkpoint"])

    # In float32, because bfloat16 rounds otherwise on each kind of processor, and AdamW makes such gradients large.
    # A rank is silent for some seconds too when the machine is busy.
    silent = {"silent_seconds": 10.0} if how == signal.SIGSTOP else {}
    master = asyncio.run(with_backend(work, ranks=2, more=IN_FLOAT32, **silent))
    _, alone = steps_in_process(make_run("alone"), [two_groups()])
    expected = master_of(alone["checkpoint"])
    assert (master - expected).norm() <= 1e-5 * expected.norm()


def test_a_step_of_two_ranks_that_is_cancelled_inside_a_pack_ends(make_run, hold):
    run = make_run()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        progress = Progress()
        (hold / "1-backward").touch()
        step = asyncio.ensure_future(backend.train_step(run.request(base["checkpoint"], two_groups()), progress))
        await held_pid(hold)
        before = pids(backend)
        progress.cancel()
        with pytest.raises(Cancelled):
            await asyncio.wait_for(step, 60)
        assert [each for each in before if is_alive(each)] == []

    asyncio.run(with_backend(work, ranks=2))


@KINDS
def test_a_run_goes_on_with_another_number_of_ranks_and_back(make_run, hold, settings):
    run = make_run()
    batches = [two_groups(), two_groups()[::-1], two_groups()[1:]]
    expected = steps_in_process(make_run("alone"), batches, **settings)

    async def step(backend, parent, version):
        return await backend.train_step(run.request(parent, batches[version - 1], version, **settings), Progress())

    async def first(backend):
        base = await backend.load_base(base_request(run, **settings), Progress())
        return await step(backend, base["checkpoint"], 1)

    made = asyncio.run(with_backend(first, ranks=2, more=IN_FLOAT32))
    for version, ranks in ((2, 1), (3, 2)):
        wait_or_replay = made["checkpoint"]
        made = asyncio.run(
            with_backend(lambda b, p=wait_or_replay, v=version: step(b, p, v), ranks=ranks, more=IN_FLOAT32)
        )
    start, one = master_of(expected[0]["checkpoint"]), master_of(expected[-1]["checkpoint"])
    manifest = read_manifest(Path(made["checkpoint"]))
    assert manifest.optimizer_steps == 3
    resumed = Trainer(torch.device("cpu"), 64, dtype=torch.float32)
    other = resumed.state_of(Path(made["checkpoint"]), manifest, Progress()).policy.master
    assert (other - one).norm() <= 1e-5 * (one - start).norm()


@KINDS
@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_without_a_written_state_are_done_again_with_equal_weights(make_run, hold, ranks, settings):
    batches = [two_groups(), two_groups()[::-1], two_groups()[1:], two_groups()[2:]]
    going_on, again = make_run("going-on"), make_run("again")

    async def steps(backend, run, parent, numbers):
        for number in numbers:
            request = run.request(parent, batches[number - 1], number, save_optimizer_every=4, **settings)
            parent = (await backend.train_step(request, Progress()))["checkpoint"]
        return parent

    async def all_at_once(backend):
        base = await backend.load_base(base_request(going_on, **settings), Progress())
        return await steps(backend, going_on, base["checkpoint"], (1, 2, 3, 4))

    async def first_part(backend):
        base = await backend.load_base(base_request(again, **settings), Progress())
        return await steps(backend, again, base["checkpoint"], (1, 2, 3))

    expected = asyncio.run(with_backend(all_at_once, ranks=ranks))
    third = asyncio.run(with_backend(first_part, ranks=ranks))
    assert not (Path(third) / "trainer").exists()
    made = asyncio.run(with_backend(lambda b: steps(b, again, third, (4,)), ranks=ranks))
    one, other = read_manifest(Path(expected)), read_manifest(Path(made))
    assert (other.weights_sha256, other.canary) == (one.weights_sha256, one.canary)
    # `keep_checkpoints` would remove versions 1 and 2, from which version 3 is computed.
    assert len(list((again.home / "checkpoints").glob("[!.]*"))) == 5


def test_ranks_with_different_code_are_refused(make_run, hold):
    (hold / "1-other-code").touch()
    with pytest.raises(GpuWorkerError, match=r"rank 1 on .* runs other code than rank 0"):
        asyncio.run(with_backend(lambda b: b.load_base(base_request(make_run()), Progress()), ranks=2))
