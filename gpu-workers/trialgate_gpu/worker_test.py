import asyncio
import logging

from temporalio.testing import ActivityEnvironment

from .backends.backend import TrainerBackend
from .worker import Activities


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
