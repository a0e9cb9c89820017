import asyncio

import pytest

from conftest import SETTINGS

from ..errors import Cancelled
from ..group.backend import LocalBackend
from ..group.controller import GroupOptions
from ..progress import Progress
from .backend import TrainerBackend
from .registry import Backends
from .tinker.backend import TinkerBackend


def test_settings_that_name_a_server_choose_it_and_others_choose_this_device():
    backends = Backends(LocalBackend(GroupOptions()))
    server = {"url": "http://host:8000", "model": None, "timeout": 60.0}
    assert backends.of(SETTINGS | {"trainer_server": server}).name == "tinker"
    assert backends.of(SETTINGS).name == "local"
    # A request of an older release does not have the setting.
    assert backends.of({}).name == "local"


class Held(TrainerBackend):
    """Does a step when it may. `began` has the number of each."""

    name = "held"

    def __init__(self):
        super().__init__()
        self.may_go_on, self.began = asyncio.Event(), []

    async def call(self, name, request, progress):
        self.began.append(request["number"])
        await self.may_go_on.wait()
        return {}

    async def end(self):
        pass


class HeldOnServers(Held):
    place_of = TinkerBackend.place_of


async def test_a_step_that_is_cancelled_while_it_waits_for_another_one_ends_and_the_one_behind_it_has_its_turn():
    backend, progress = Held(), Progress()
    first = asyncio.ensure_future(backend.train_step({"number": 1}, Progress()))
    second = asyncio.ensure_future(backend.train_step({"number": 2}, progress))
    third = asyncio.ensure_future(backend.train_step({"number": 3}, Progress()))
    while progress.state["phase"] != "waiting for another step":
        await asyncio.sleep(0)
    progress.cancel()
    with pytest.raises(Cancelled):
        await second
    assert backend.began == [1] and not first.done()
    backend.may_go_on.set()
    await asyncio.gather(first, third)
    assert backend.began == [1, 3]


async def test_steps_on_different_trainer_servers_do_not_wait_for_each_other():
    backend = HeldOnServers()
    servers = [{"trainer_server": {"url": f"http://{name}:8000"}} for name in ("a", "b", "a")]
    requests = [{"number": i, "trainer": server} for i, server in enumerate(servers)] + [{"number": 3, **servers[1]}]
    steps = [asyncio.ensure_future(backend.train_step(request, Progress())) for request in requests]
    while len(backend.began) < 2:
        await asyncio.sleep(0)
    assert backend.began == [0, 1]
    backend.may_go_on.set()
    await asyncio.gather(*steps)
    assert sorted(backend.began) == [0, 1, 2, 3]
