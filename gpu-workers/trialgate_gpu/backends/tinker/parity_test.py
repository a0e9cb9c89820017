"""Compares a step on a server with the same step of the local trainer, from the same adapter."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from conftest import two_groups
from scripted_engine import ScriptedEngine

from ...batch import read_batch
from ...canary import Canary
from ...checkpoint import TrainerState
from ...lora import PEFT_PREFIX, Lora
from ...manifest import ADAPTER, BASE, read_manifest
from ...measure_canary import measure_canary
from ...merge import merge
from ...optimize import optimize
from ...optimizer import FlatAdamW
from ...policy import Policy
from ...prepare import prepare
from ...progress import Progress
from ...publish import publish_policy
from ...settings import parse_settings
from ..conformance_test import GIVEN_URL, Subject, model, served, subject  # noqa: F401

pytestmark = pytest.mark.processes

ONLY_TINKER = pytest.mark.parametrize("subject", ["tinker"], indirect=True)
# Both compute in float32. A tensor that was rounded to bfloat16 somewhere would differ by 4e-3.
TOLERANCE = 1e-3


def adapter(folder: str) -> dict[str, torch.Tensor]:
    return {name: tensor.float() for name, tensor in load_file(Path(folder) / ADAPTER).items()}


def of_local_trainer(parent: str, requests: list[dict]) -> dict[str, torch.Tensor]:
    """Returns the adapter that the local trainer makes in these steps from `parent`'s, computing in float32."""
    folder = Path(parent)
    policy = Policy(folder / BASE, torch.device("cpu"), torch.float32, Lora(**read_manifest(folder).lora))
    given = adapter(parent)
    views = policy._views(policy.master)
    names = {name: PEFT_PREFIX + name.replace(".default.weight", ".weight") for name in views}
    assert sorted(names.values()) == sorted(given)
    for name, view in views.items():
        view.copy_(given[names[name]])
    policy.refresh()
    state = TrainerState(policy, FlatAdamW(policy.master, policy.decayed()))
    for request, key in requests:
        settings = parse_settings(request["trainer"])
        parent_version = request["version"] - 1
        samples = read_batch(Path(request["batch_path"]), request["batch_sha256"], parent_version)
        optimize(state, prepare(samples, settings, parent_version), settings, 64, int(key[:15], 16), Progress())
    return {names[name]: view.clone() for name, view in policy._views(policy.master).items()}


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    return float(sum((found[name] - expected[name]).square().sum() for name in expected) ** 0.5)


@ONLY_TINKER
@pytest.mark.parametrize("by_sequence", [False] if GIVEN_URL else [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.gate),
        {"objective": "gspo"},
        {"objective": "cispo", "loss_agg_mode": "seq-mean-token-mean"},
        {"ppo_mini_batch_size": 4, "rollout_is": "sequence"},
        {"optim": {"lr": 1e-2, "clip_grad": 1e-3, "weight_decay": 0.1}},
    ],
)
def test_two_steps_on_a_server_give_the_weights_of_the_local_trainer(subject: Subject, settings, by_sequence):  # noqa: F811
    if subject.server:
        subject.server.faults.by_sequence = subject.server.faults.no_clip = by_sequence
    base = subject.base()
    record = read_manifest(Path(base["checkpoint"])).trainer_server
    if subject.server:
        assert record["by_sequence"] == by_sequence
        assert record["clips"] != by_sequence
    one_request = subject.request(base["checkpoint"], **settings)
    one = subject.make().train_step(one_request, Progress())
    two_request = subject.request(one["checkpoint"], two_groups()[::-1], version=2, **settings)
    two = subject.make().train_step(two_request, Progress())
    requests = [(one_request, one["step_key"]), (two_request, two["step_key"])]
    for number, made in enumerate([one, two], 1):
        expected = of_local_trainer(base["checkpoint"], requests[:number])
        start, found = adapter(base["checkpoint"]), adapter(made["checkpoint"])
        moved = distance(expected, start)
        print(f"step {number}: {distance(found, expected) / moved:.2e} of the distance moved")
        assert distance(found, expected) < TOLERANCE * moved


@ONLY_TINKER
def test_a_version_of_a_server_is_exported_like_one_of_the_local_trainer(subject: Subject, tmp_path: Path):  # noqa: F811
    base = subject.base()["checkpoint"]
    made = subject.make().train_step(subject.request(base), Progress())
    (tmp_path / "merged").mkdir()
    merge(Path(made["checkpoint"]), tmp_path / "merged")
    canary = Canary.from_json(made["canary"])
    found = measure_canary(Policy(tmp_path / "merged", torch.device("cpu")), canary.token_ids)
    # The merged model is rounded to bfloat16.
    assert found.logprobs == pytest.approx(canary.logprobs, abs=0.05)
    start = Canary.from_json(read_manifest(Path(base)).canary)
    assert distance_of(found, canary) < distance_of(start, canary) / 5


def distance_of(one: Canary, other: Canary) -> float:
    return float(np.abs(np.subtract(one.logprobs, other.logprobs)).mean())


@pytest.mark.gate
@ONLY_TINKER
def test_a_version_of_a_server_is_published_to_engines_as_an_adapter(subject: Subject, tmp_path: Path):  # noqa: F811
    base = subject.base()["checkpoint"]
    made = subject.make().train_step(subject.request(base), Progress())
    engine = ScriptedEngine(tmp_path / "e.sock", read_manifest(Path(base)).canary["logprobs"])
    engine.max_lora_rank, engine.adapter_logprobs = 8, made["canary"]["logprobs"]
    request = {
        "weight_version": "run@1",
        "checkpoint": made["checkpoint"],
        "replicas": [engine.url],
        "min_replicas": 1,
        "canary": made["canary"],
        "canary_tolerance": 0.02,
        "previous": None,
    }

    async def publish() -> dict:
        async with engine.running():
            return await publish_policy(request, Progress())

    assert asyncio.run(publish())["published"]
    assert engine.adapters == {"run@1": made["checkpoint"]}
