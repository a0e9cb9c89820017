import asyncio
import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from conftest import LORA, two_groups

from ..errors import Cancelled, GpuWorkerError
from ..load_base import load_base
from ..log import about_run, run_under_way
from ..processes import is_alive
from ..progress import Progress
from ..train_step import Trainer
from .backend import LocalBackend
from .controller import GroupOptions

pytestmark = pytest.mark.processes
RANK_OPTIONS = ("--device", "cpu", "--pack-tokens", "64", "--threads", "1")


@pytest.fixture
def hold(tmp_path, monkeypatch):
    folder = tmp_path / "hold"
    folder.mkdir()
    monkeypatch.setenv("TRIALGATE_HOLD", str(folder))
    return folder


def options(ranks=1, more=(), **changes):
    return GroupOptions(ranks, module="paused_rank", options=(*RANK_OPTIONS, *more), **changes)


def pids(backend):
    return [backend.group._process.pid, *(rank.pid for rank in backend.group.ranks.values())]


async def held_pid(hold):
    while not (hold / "held").exists():
        await asyncio.sleep(0.02)
    return int((hold / "held").read_text())


async def with_backend(work, **changes):
    backend = LocalBackend(options(**changes))
    try:
        return await work(backend)
    finally:
        await backend.end()


def in_process(run, rows, **settings):
    trainer = Trainer(torch.device("cpu"), 64)
    base = load_base(trainer, base_request(run, **settings), Progress())
    return trainer.train_step(run.request(base["checkpoint"], rows, **settings), Progress())


def parent_of(pid):
    # The name in parentheses may have spaces.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def base_request(run, **settings):
    return {"run_id": "run", "model": str(run.model), "home": str(run.home)} | settings


@pytest.mark.parametrize("settings", [{}, LORA], ids=["all weights", "LoRA"])
def test_a_group_of_one_makes_the_same_checkpoints_as_a_trainer_in_this_process(make_run, hold, settings):
    run = make_run("group")

    async def work(backend):
        base = await backend.load_base(base_request(run, **settings), Progress())
        request = run.request(base["checkpoint"], two_groups(), **settings)
        one = await backend.train_step(request, Progress())
        first = pids(backend)
        again = await backend.train_step(request, Progress())
        assert again == one | {"reused": True} and pids(backend) == first
        return one

    made = asyncio.run(with_backend(work))
    expected = in_process(make_run("alone"), two_groups(), **settings)
    assert made["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert made["canary"] == expected["canary"]


def test_the_progress_of_a_rank_is_seen_while_its_step_runs(make_run, hold):
    run, seen = make_run(), Progress()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        (hold / "0-backward").touch()
        step = asyncio.ensure_future(backend.train_step(run.request(base["checkpoint"], two_groups()), seen))
        await held_pid(hold)
        while seen.state["phase"] != "train":
            await asyncio.sleep(0.02)
        seen.cancel()
        with pytest.raises(Cancelled):
            await step

    asyncio.run(with_backend(work))
    assert seen.state["pack"] == 1


def test_a_rank_s_line_is_about_the_run_whose_command_it_does_not_about_the_run_that_started_it(make_run, hold):
    run, said = make_run(), []
    handler = logging.Handler()
    handler.emit = lambda record: said.append((run_under_way(), record.getMessage()))

    async def work(backend):
        with about_run("first"):
            base = await backend.load_base(base_request(run), Progress())
        (hold / "0-warn").touch()
        with about_run("second"):
            await backend.train_step(run.request(base["checkpoint"], two_groups()), Progress())

    logging.getLogger("trialgate.gpu").addHandler(handler)
    try:
        asyncio.run(with_backend(work))
    finally:
        logging.getLogger("trialgate.gpu").removeHandler(handler)
    assert ("second", "rank 0: is slow") in said


def test_a_step_that_is_cancelled_inside_a_pack_ends_its_ranks_and_the_next_try_makes_the_same_weights(make_run, hold):
    run = make_run()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        request, progress = run.request(base["checkpoint"], two_groups()), Progress()
        (hold / "0-backward").touch()
        step = asyncio.ensure_future(backend.train_step(request, progress))
        await held_pid(hold)
        before = pids(backend)
        progress.cancel()
        with pytest.raises(Cancelled):
            await asyncio.wait_for(step, 60)
        assert not any(map(is_alive, before))
        assert [p.name for p in (run.home / "checkpoints").iterdir()] == [Path(base["checkpoint"]).name]
        return await backend.train_step(request, Progress())

    made = asyncio.run(with_backend(work))
    assert made["checkpoint_sha256"] == in_process(make_run("alone"), two_groups())["checkpoint_sha256"]


def test_a_request_without_a_field_is_refused_by_its_name(make_run, hold):
    run = make_run()

    async def work(backend):
        request = base_request(run)
        del request["home"]
        with pytest.raises(GpuWorkerError, match="the request has no 'home'") as caught:
            await backend.load_base(request, Progress())
        assert (caught.value.kind, caught.value.retryable) == ("BadRequest", False)

    asyncio.run(with_backend(work))


def test_an_error_that_every_rank_answers_leaves_the_group_as_it_is(make_run, hold):
    run = make_run()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        before = pids(backend)
        request = run.request(base["checkpoint"], two_groups())
        with pytest.raises(GpuWorkerError, match="sha256") as caught:
            await backend.train_step(request | {"batch_sha256": "0" * 64}, Progress())
        assert not caught.value.retryable
        await backend.train_step(request, Progress())
        assert pids(backend) == before

    asyncio.run(with_backend(work))


@pytest.mark.parametrize(
    ("fault", "ranks", "stays"),
    [("bug", 1, False), ("key", 1, False), ("bug", 2, False), ("memory", 1, True), ("memory", 2, False)],
)
def test_a_group_ends_after_an_error_that_may_leave_its_ranks_broken(make_run, hold, fault, ranks, stays):
    run = make_run()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        before = pids(backend)
        for rank in range(ranks):
            (hold / f"{rank}-{fault}").touch()
        request = run.request(base["checkpoint"], two_groups())
        with pytest.raises(
            GpuWorkerError, match={"memory": "memory is full", "key": "KeyError: 'x'"}.get(fault, "nobody foresaw this")
        ):
            await backend.train_step(request, Progress())
        assert [is_alive(pid) for pid in before] == [stays] * len(before)
        assert not (await backend.train_step(request, Progress()))["reused"]

    asyncio.run(with_backend(work, ranks=ranks))


def test_a_group_whose_controller_is_killed_leaves_no_process(make_run, hold, tmp_path):
    run = make_run()
    # The rank is stopped: it cannot notice that its connection closes.
    code = (
        "import asyncio, json, os, signal, sys\n"
        "from trialgate_gpu.group.group_test import options, pids, base_request\n"
        "from trialgate_gpu.group.backend import LocalBackend\n"
        "from trialgate_gpu.progress import Progress\n"
        "async def main():\n"
        "    backend = LocalBackend(options(ranks=int(sys.argv[2])))\n"
        "    await backend.load_base(json.loads(sys.argv[1]), Progress())\n"
        "    os.kill(pids(backend)[-1], signal.SIGSTOP)\n"
        "    print(json.dumps(pids(backend)), flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", code, json.dumps(base_request(run)), "2"]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(root)}
    ) as process:
        left = json.loads(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 20
    while any(map(is_alive, left)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in left if is_alive(pid)] == []


def test_the_end_of_a_group_kills_no_process_that_has_the_id_of_a_rank_that_is_gone(make_run, hold):
    run = make_run()

    async def work(backend, other):
        await backend.load_base(base_request(run), Progress())
        rank = backend.group.ranks[0]
        os.kill(rank.pid, signal.SIGKILL)
        while rank.is_connected:
            await asyncio.sleep(0.02)
        # As if the kernel had given the rank's id to this process.
        rank.pid = other.pid
        ending = asyncio.ensure_future(backend.end())
        while backend.group._process.returncode is None:
            await asyncio.sleep(0.02)
        assert other.poll() is None
        other.kill()
        await ending

    with subprocess.Popen(["sleep", "1000"]) as other:
        asyncio.run(with_backend(lambda backend: work(backend, other)))


def test_the_end_of_a_group_kills_a_rank_that_has_not_said_hello(make_run, hold):
    run, progress = make_run(), Progress()

    async def work(backend):
        (hold / "0-hello").touch()
        loading = asyncio.ensure_future(backend.load_base(base_request(run), progress))
        pid = await held_pid(hold)
        progress.cancel()
        with pytest.raises(Cancelled):
            await loading
        assert not is_alive(pid)

    asyncio.run(with_backend(work))


def test_a_busy_port_for_the_ranks_is_refused_by_its_name(make_run, hold):
    run = make_run()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(GpuWorkerError, match=address) as caught:
            asyncio.run(with_backend(lambda b: b.load_base(base_request(run), Progress()), address=address))
    assert caught.value.kind == "BadSettings"


def test_a_launch_command_that_starts_another_number_of_ranks_is_refused(make_run, hold):
    run = make_run()
    launch = "{python} -m torch.distributed.run --standalone --nproc-per-node 1"
    with pytest.raises(GpuWorkerError, match="started 1 ranks, and `ranks` is 2"):
        asyncio.run(with_backend(lambda b: b.load_base(base_request(run), Progress()), ranks=2, launch=launch))


# Starts what follows twice, as `srun --nodes 2 --ntasks-per-node 1` does.
ON_TWO_NODES = (
    "import subprocess, sys; "
    "started = [subprocess.Popen(sys.argv[1:]) for _ in range(2)]; "
    "sys.exit(max(each.wait() for each in started))"
)


def test_the_agents_of_two_nodes_that_meet_at_one_address_start_one_group(make_run, hold):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agents = "{python} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d"
    launch = f"{{python}} -c {shlex.quote(ON_TWO_NODES)} {agents} --rdzv-endpoint 127.0.0.1:{port}"
    run = make_run()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        made = await backend.train_step(run.request(base["checkpoint"], two_groups()), Progress())
        assert set(backend.group.ranks) == {0, 1}
        # Every node has an agent of its own, whose child its rank is.
        parents = {parent_of(rank.pid) for rank in backend.group.ranks.values()}
        assert len(parents) == 2
        started = [*parents, *pids(backend)]
        await backend.end()
        assert not any(is_alive(pid) for pid in started)
        return made

    made = asyncio.run(with_backend(work, ranks=2, launch=launch))
    assert made["metrics"]["actor/updates"] == 1


def test_a_launch_command_that_fails_is_named_with_its_reason(make_run, hold):
    run = make_run()
    with pytest.raises(GpuWorkerError, match="launch command ended") as caught:
        asyncio.run(with_backend(lambda b: b.load_base(base_request(run), Progress()), launch="false"))
    assert caught.value.retryable
