"""States the rules of `TrainerBackend`, for each backend. `docs/trainers.md` says which servers passed.

The server of these tests is `tinker_server.py`. With TRIALGATE_TEST_TRAINER_SERVER=URL (and _MODEL, the folder that it
serves) they run against any other server instead; `skyrl_test.py` starts SkyRL's and does so.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import tinker_server
from conftest import make_tiny_model, request_settings, row, step_request, two_groups

from ..errors import Cancelled, GpuWorkerError
from ..group.rank import run_command
from ..manifest import read_manifest
from ..progress import Progress
from ..train_step import Trainer
from .backend import Json, TrainerBackend
from .tinker.backend import TinkerBackend

pytestmark = pytest.mark.processes
GIVEN_URL = os.environ.get("TRIALGATE_TEST_TRAINER_SERVER")
LORA = {"lora_rank": 4, "lora_alpha": 32.0, "target_modules": "all-linear", "seed": 0}
FORK = multiprocessing.get_context("fork")


class Driven:
    """Calls a backend from tests that are not asynchronous."""

    def __init__(self, backend: TrainerBackend) -> None:
        self.backend = backend

    def load_base(self, request: Json, progress: Progress) -> Json:
        return asyncio.run(self.backend.load_base(request, progress))

    def train_step(self, request: Json, progress: Progress) -> Json:
        return asyncio.run(self.backend.train_step(request, progress))


class InProcess(TrainerBackend):
    """Does what a rank does with a command. `group_test.py` shows that a group of one makes the same of it."""

    name = "local"

    def __init__(self) -> None:
        super().__init__()
        self.trainer = Trainer(torch.device("cpu"), 64)

    async def call(self, name: str, request: Json, progress: Progress) -> Json:
        command = {"name": name, "request": request}
        return await asyncio.to_thread(run_command, self.trainer, command, progress)

    async def end(self) -> None:
        self.trainer.settle()


@dataclass
class Subject:
    """A backend under test. `settings` choose it in a request; `server` is the test server where it has one."""

    backend: Callable[[], TrainerBackend]
    settings: Json
    model: Path
    home: Path
    server: tinker_server.Server | None = None

    def make(self) -> Driven:
        return Driven(self.backend())

    def base(self) -> Json:
        names = ("trainer_server", "enable_router_replay", *LORA)
        settings = {name: request_settings(**self.settings)[name] for name in names}
        request = {"run_id": "run", "model": str(self.model), "home": str(self.home)} | settings
        return self.make().load_base(request, Progress())

    def request(self, parent: str, rows: list[Json] | None = None, version: int = 1, **changes: Any) -> Json:
        return step_request(self.home, parent, rows or two_groups(), version, **(self.settings | changes))

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.home / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("TRIALGATE_TEST_TRAINER_SERVER_MODEL")
    return Path(given) if given else make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def served(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, tinker_server.Server | None]]:
    if GIVEN_URL:
        yield GIVEN_URL, None
        return
    faults = tinker_server.parse_arguments([str(model), "--state", str(tmp_path_factory.mktemp("state"))])
    server, http = tinker_server.start(faults)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}", server
    http.shutdown()


BACKENDS = ["tinker"] if GIVEN_URL else ["local", "local-lora", "tinker"]


@pytest.fixture(params=BACKENDS)
def subject(request: pytest.FixtureRequest, model: Path, tmp_path: Path) -> Subject:
    if request.param == "tinker":
        url, server = request.getfixturevalue("served")
        settings = {"trainer_server": {"url": url, "model": None, "timeout": 600.0}} | LORA
        return Subject(TinkerBackend, settings, model, tmp_path, server)

    return Subject(InProcess, LORA if request.param == "local-lora" else {}, model, tmp_path)


class Watched(Progress):
    """Calls `at(number, phase)` each time that a step shows what it does."""

    def __init__(self, at: Callable[[int, str], None]) -> None:
        super().__init__()
        self.at, self.phases = at, []

    def show(self, phase: str, **numbers: float | str) -> None:
        self.phases.append(phase)
        self.at(len(self.phases), phase)
        super().show(phase, **numbers)


class CancelledAt(Watched):
    def __init__(self, last: int) -> None:
        super().__init__(lambda number, phase: self.cancel() if number == last else None)


def phases_of(subject: Subject, request: Json) -> list[str]:
    watched = Watched(lambda number, phase: None)
    subject.make().train_step(request, watched)
    return watched.phases


def elsewhere(subject: Subject, name: str) -> Subject:
    """Returns the same backend with another home."""
    return Subject(subject.backend, subject.settings, subject.model, subject.home / name, subject.server)


def test_version_0_has_the_weights_of_the_base_model_and_its_canary(subject: Subject):
    made = subject.base()
    assert read_manifest(Path(made["checkpoint"])).version == 0
    assert len(made["canary"]["logprobs"]) == len(made["canary"]["token_ids"]) - 1


def test_version_0_is_made_once_and_made_again_when_a_file_of_the_base_is_gone(subject: Subject):
    made = subject.base()
    folder = Path(made["checkpoint"])
    first = folder.stat().st_ino
    assert subject.base() == made
    assert folder.stat().st_ino == first
    next(folder.rglob("config.json")).unlink()
    assert subject.base() == made
    assert list(folder.rglob("config.json"))


def test_a_step_makes_good_replies_likelier_and_bad_ones_less_likely_and_says_what_it_did(subject: Subject):
    base = subject.base()
    # The canary begins with these tokens, so it shows the change.
    prompt, reply = base["canary"]["token_ids"][:4], base["canary"]["token_ids"][4:8]
    other = [(token + 7) % 60 for token in reply]
    rows = [row(prompt, reply, 1.0, "g", "a"), row(prompt, other, 0.0, "g", "b")]
    made = subject.make().train_step(subject.request(base["checkpoint"], rows), Progress())
    before, after = (sum(each["canary"]["logprobs"][3:7]) for each in (base, made))
    assert after > before
    assert made["metrics"]["actor/updates"] == 1
    assert made["metrics"]["actor/grad_norm"] > 0
    assert not made["reused"]


@pytest.mark.gate
def test_a_finished_step_is_not_done_again(subject: Subject):
    request = subject.request(subject.base()["checkpoint"])
    one = subject.make().train_step(request, Progress())
    again = subject.make().train_step(request | {"batch_path": "/gone"}, Progress())
    assert again == one | {"reused": True}


def test_the_same_steps_give_the_same_weights_in_another_home(subject: Subject):
    found = []
    for name in ("a", "b"):
        other = elsewhere(subject, name)
        one = other.make().train_step(other.request(other.base()["checkpoint"]), Progress())
        two = other.make().train_step(other.request(one["checkpoint"], version=2), Progress())
        found.append((two["step_key"], two["checkpoint_sha256"], two["canary"]))
    assert found[0] == found[1]


def test_another_batch_parent_or_setting_is_another_step(subject: Subject):
    base = subject.base()["checkpoint"]
    one = subject.make().train_step(subject.request(base), Progress())
    others = [
        subject.request(base, two_groups()[::-1]),
        subject.request(one["checkpoint"], version=2),
        subject.request(base, optim={"lr": 2e-2}),
    ]
    keys = {one["step_key"], *(subject.make().train_step(each, Progress())["step_key"] for each in others)}
    assert len(keys) == 4


def test_a_step_cancelled_in_any_phase_leaves_nothing_and_is_done_again(subject: Subject):
    base = subject.base()["checkpoint"]
    other = elsewhere(subject, "other")
    expected = other.make().train_step(other.request(other.base()["checkpoint"]), Progress())
    request = subject.request(base)
    before = subject.checkpoints()
    numbers = range(1, 1 + len(phases_of(elsewhere(subject, "third"), third_request(subject, "third"))))
    for number in numbers:
        with pytest.raises(Cancelled):
            subject.make().train_step(request, CancelledAt(number))
        assert subject.checkpoints() == before
    again = subject.make().train_step(request, Progress())
    assert again["checkpoint_sha256"] == expected["checkpoint_sha256"]


def third_request(subject: Subject, name: str) -> Json:
    other = elsewhere(subject, name)
    return other.request(other.base()["checkpoint"])


def killed_at(subject: Subject, request: Json, number: int) -> None:
    """Runs the step in a process of its own, which dies when it shows its progress for the `number`th time."""

    def run() -> None:
        def die(n: int, phase: str) -> None:
            if n == number:
                os.kill(os.getpid(), signal.SIGKILL)

        subject.make().train_step(request, Watched(die))

    process = FORK.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    "subject",
    [each if each == "tinker" else pytest.param(each, marks=pytest.mark.gate) for each in BACKENDS],
    indirect=True,
)
def test_a_step_whose_process_is_killed_in_any_phase_is_done_again_once_with_the_same_weights(subject: Subject):
    saved_before = set(subject.server.state.iterdir()) if subject.server else set()
    base = subject.base()["checkpoint"]
    phases = phases_of(elsewhere(subject, "other"), third_request(subject, "other"))
    before = subject.checkpoints()
    for number in range(1, len(phases) + 1):
        killed_at(subject, subject.request(base), number)
        assert [name for name in subject.checkpoints() if not name.startswith(".tmp-")] == before
    done = subject.make().train_step(subject.request(base), Progress())
    other = elsewhere(subject, "third")
    expected = other.make().train_step(other.request(other.base()["checkpoint"]), Progress())
    assert done["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert not done["reused"]
    assert len(subject.checkpoints()) == len(before) + 1
    assert list((subject.home / "trainer-server").glob("*")) == []
    if subject.server:
        # The server keeps nothing that the killed attempts saved.
        made = [read_manifest(path.parent).trainer_server for path in subject.home.rglob("[!.]*/manifest.json")]
        named = {subject.server.file_of(record["weights"]) for record in made if record}
        assert set(subject.server.state.iterdir()) - saved_before == named


def test_a_step_shows_each_of_its_phases(subject: Subject):
    phases = phases_of(subject, subject.request(subject.base()["checkpoint"]))
    assert {"read batch", "optimizer", "canary", "write checkpoint"} <= set(phases)


def test_a_step_on_a_batch_without_advantages_makes_a_version_equal_to_its_parent(subject: Subject):
    base = subject.base()
    made = subject.make().train_step(subject.request(base["checkpoint"], two_groups(spread=False)), Progress())
    assert made["metrics"]["actor/updates"] == 0
    assert made["canary"] == base["canary"]
    # It is a parent like any other.
    two = subject.make().train_step(subject.request(made["checkpoint"], version=2), Progress())
    assert two["metrics"]["actor/updates"] == 1


@pytest.mark.gate
def test_a_step_with_a_number_that_is_not_finite_is_skipped_and_says_why(subject: Subject):
    base = subject.base()
    rows = [*two_groups(), row([5], [6], float("nan"), "g", "bad"), row([5], [7], 0.0, "g", "good")]
    made = subject.make().train_step(subject.request(base["checkpoint"], rows), Progress())
    assert "not finite" in made["skipped"]
    assert made["canary"] == base["canary"]
    two = subject.make().train_step(subject.request(made["checkpoint"], version=2), Progress())
    assert two["skipped"] is None


@pytest.mark.parametrize("settings", [{"ppo_epochs": 2}, {"ppo_mini_batch_size": 4}, {"objective": "gspo"}])
def test_a_step_makes_one_update_for_each_mini_batch_of_each_epoch(subject: Subject, settings: Json):
    made = subject.make().train_step(subject.request(subject.base()["checkpoint"], **settings), Progress())
    assert made["metrics"]["actor/updates"] == (1 if "objective" in settings else 2)


def test_a_gradient_above_clip_grad_is_scaled_down_to_it(subject: Subject):
    base = subject.base()["checkpoint"]
    # With so large an eps AdamW's first update is proportional to the gradient.
    optim = {"lr": 1.0, "eps": 1e3, "betas": [0.9, 0.999]}
    found = []
    for clip in (1e3, 1e-2, 1e-3):
        request = subject.request(base, optim=optim | {"clip_grad": clip})
        found.append(subject.make().train_step(request, Progress()))
    assert len({each["checkpoint_sha256"] for each in found}) == 3
    norms = [each["metrics"]["actor/grad_norm"] for each in found]
    assert norms[0] > 1e-2


def test_a_batch_that_is_not_there_is_refused_for_good(subject: Subject):
    request = subject.request(subject.base()["checkpoint"])
    before = subject.checkpoints()
    with pytest.raises(GpuWorkerError) as found:
        subject.make().train_step(request | {"batch_path": "/gone"}, Progress())
    assert not found.value.retryable
    assert subject.checkpoints() == before


def test_a_parent_with_another_adapter_than_the_settings_say_is_refused_for_good(subject: Subject):
    base = Path(subject.base()["checkpoint"])
    record = json.loads((base / "manifest.json").read_text())
    record["lora"] = {"rank": 2, "alpha": 1.0, "target_modules": "all-linear", "seed": 0}
    (base / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(GpuWorkerError, match="has lora_rank 2") as found:
        subject.make().train_step(subject.request(str(base)), Progress())
    assert not found.value.retryable
