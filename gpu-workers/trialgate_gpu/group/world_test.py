import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from ..errors import GpuWorkerError
from .world import World

PATIENCE = timedelta(seconds=15)


def in_two_ranks(folder: Path, work: Callable[[World], None]) -> None:
    """Does `work` in two processes, and fails when it fails in one of them."""

    def as_rank(rank: int) -> None:
        meet = f"file://{folder}/meet"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2, timeout=PATIENCE)
        # An exchange in the background is given up last, so that the test fails when a rank waits in one.
        work(World(rank, 2, dist.new_group(timeout=4 * PATIENCE)))

    ranks = [multiprocessing.get_context("fork").Process(target=as_rank, args=(rank,)) for rank in (0, 1)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert [each.exitcode for each in ranks] == [0, 0]


def test_all_ranks_go_by_what_rank_0_finds_on_its_disk(tmp_path):
    def work(world: World) -> None:
        disk = tmp_path / str(world.rank)
        disk.mkdir()
        if world.rank == 0:
            (disk / "file").touch()
        assert world.ask_first((disk / "file").is_file)

    in_two_ranks(tmp_path, work)


def test_all_ranks_raise_the_error_that_rank_0_finds(tmp_path):
    def missing() -> None:
        raise GpuWorkerError("MissingCheckpoint", "it is not there", retryable=True)

    def work(world: World) -> None:
        with pytest.raises(GpuWorkerError, match="it is not there") as caught:
            world.ask_first(missing if world.rank == 0 else lambda: None)
        assert (caught.value.kind, caught.value.retryable) == ("MissingCheckpoint", True)

    in_two_ranks(tmp_path, work)


def test_all_ranks_raise_the_error_of_any_rank(tmp_path):
    def work(world: World) -> None:
        def fails() -> None:
            raise GpuWorkerError("CorruptCheckpoint", f"rank {world.rank} failed")

        with pytest.raises(GpuWorkerError, match="rank 1 failed"):
            world.together(fails if world.rank == 1 else lambda: None)
        assert world.together(lambda: world.rank) == world.rank

    in_two_ranks(tmp_path, work)
