"""Tests that a replayed pass computes each token with the experts of the record, as a plain reference does."""

import io
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from conftest import row, write_batch

from . import router_replay
from .batch import read_batch
from .check_trainer import check_model
from .errors import GpuWorkerError
from .families_test import EXPERTS, TRAINED, make
from .group.placement import recompute_layers
from .group.sharded_policy import ShardedPolicy
from .group.world import World
from .lora import Lora
from .pack import chain, make_packs
from .policy import Policy
from .prefix import Prefixes
from .prepare import prepare
from .progress import Progress
from .router_replay import PROVEN, share_routing, with_routing
from .routing import Mixture, RecordedRows, Routing, read_routing
from .settings import parse_settings
from .train_step import Trainer

CPU = torch.device("cpu")
TEMPERATURE = 0.8
# How each family turns logits into weights: softmax over all experts, over the chosen ones, or a sigmoid.
KINDS = {
    "softmax": ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "qwen3_next", "qwen3_5_moe_text", "ernie4_5_moe"),
    "softmax of the chosen": ("gpt_oss", "granitemoe", "granitemoehybrid"),
    "sigmoid": ("deepseek_v3", "glm4_moe", "kimi_linear", "nemotron_h", "lfm2_moe", "minimax_m2"),
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}
MADE = TRAINED | {
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 16, "mlp_only_layers": []},
    "olmoe": EXPERTS,
    "minimax_m2": EXPERTS,
    "ernie4_5_moe": EXPERTS | {"moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 0},
}


def routers_of(policy):
    return [module for module in policy.model.modules() if type(module).__name__ in PROVEN]


def sequences():
    """Returns branches off one prefix, one of which branches again, and a sequence of its own."""
    draw = np.random.default_rng(0)
    prefix, branch, other = (draw.integers(0, 64, count) for count in (16, 8, 12))
    made = [[prefix, branch], [prefix, branch, draw.integers(0, 64, 6)], [prefix, draw.integers(0, 64, 9)], [other]]
    return [np.concatenate(parts) for parts in made]


def drawn(ids, mixture):
    """Returns a random routing that is the same for the same beginning, without a record for some tokens."""
    experts = np.zeros((len(ids), len(mixture.routed), mixture.top_k), mixture.dtype)
    for end in range(len(ids)):
        draw = np.random.default_rng([int(each) for each in ids[: end + 1]])
        for layer in range(len(mixture.routed)):
            experts[end, layer] = draw.permutation(mixture.experts)[: mixture.top_k]
    return Routing(experts, ids % 5 != 0)


def chains_of(routings, untrained=0):
    made = []
    for number, (ids, routing) in enumerate(zip(sequences(), routings, strict=True)):
        trained = np.arange(len(ids)) > min(untrained, len(ids) - 2)
        each = chain(number, ids, trained, np.zeros(len(ids), np.float32), TEMPERATURE)
        made.append(each if routing is None else replace(each, routing=routing[: len(each.inputs)]))
    return made


def slopes(targets):
    return torch.sin(targets.float() + 1.0)


def packed(policy, routings, untrained, max_tokens):
    """Returns the log-probabilities of each sequence, and the gradient."""
    found, prefixes = {}, Prefixes()
    gradient = policy.start_gradient()
    for pack in make_packs(chains_of(routings, untrained), max_tokens):
        targets = torch.from_numpy(pack.targets)
        logprobs = torch.zeros(len(targets))

        def of(tokens, given, logprobs=logprobs, targets=targets):
            logprobs[tokens] = given.detach()
            return slopes(targets[tokens])

        policy.backward(pack, prefixes, of, by_sequence=False)
        if prefixes.states is not None:
            prefixes.states.collect()
        found |= {int(number): logprobs[pack.samples == number] for number in np.unique(pack.samples)}
    prefixes.end()
    return [found[number] for number in range(len(found))], gradient


def plain(name, router, routing):
    """Returns a router's `forward` that takes these experts, written down without any of the trainer's code."""
    own = router.forward

    def forward(hidden, *more):
        made = own(hidden, *more)
        chosen = torch.from_numpy(routing.experts.astype(np.int64))
        (place,) = (i for i, each in enumerate(made) if not each.is_floating_point())
        chosen = torch.where(torch.from_numpy(routing.known)[:, None], chosen, made[place])
        bias = getattr(router, "bias", None)
        logits = torch.nn.functional.linear(hidden.reshape(-1, hidden.shape[-1]), router.weight, bias)
        kind = KIND_OF[name]
        if kind == "softmax of the chosen":
            weights = logits.gather(1, chosen).softmax(-1)
        else:
            weights = (logits.softmax(-1) if kind == "softmax" else logits.sigmoid()).gather(1, chosen)
            if getattr(router, "norm_topk_prob", True):
                weights = weights / weights.sum(-1, keepdim=True)
            weights = weights * getattr(router, "routed_scaling_factor", 1.0)
        return (chosen, weights, logits) if place == 0 else (logits, weights, chosen)

    return forward


@contextmanager
def routed_plainly(name, policy, routing):
    routers = routers_of(policy)
    kept = [router.forward for router in routers]
    for place, router in enumerate(routers):
        router.forward = plain(name, router, Routing(routing.experts[:, place], routing.known))
    try:
        yield
    finally:
        for router, forward in zip(routers, kept, strict=True):
            router.forward = forward


def expected(name, policy, routings, untrained):
    """Returns the same a sequence at a time, through transformers' own logits and autograd."""
    gradient, found = policy.start_gradient(), []
    with policy.eager():
        for ids, routing in zip(sequences(), routings, strict=True):
            with routed_plainly(name, policy, routing):
                logprobs = (policy.logits(torch.from_numpy(ids))[:-1] / TEMPERATURE).log_softmax(-1)
            first = min(untrained, len(ids) - 2)
            targets = torch.from_numpy(ids[first + 1 :])
            chosen = logprobs[first:].gather(1, targets[:, None])[:, 0]
            (chosen * slopes(targets)).sum().backward()
            found.append(chosen.detach())
    return found, gradient


def own_routing(policy):
    """Returns the routing of each sequence that the model chooses for itself."""
    made = []
    for ids in sequences():
        chosen = []
        hooks = [
            router.register_forward_hook(
                lambda _, __, out, into=chosen: into.append(next(each for each in out if not each.is_floating_point()))
            )
            for router in routers_of(policy)
        ]
        with policy.eager(), torch.no_grad():
            policy.logits(torch.from_numpy(ids))
        for hook in hooks:
            hook.remove()
        # In another order: only the set counts.
        experts = torch.stack(chosen, 1).flip(-1).numpy().astype(np.uint8)
        made.append(Routing(experts, np.ones(len(ids), bool)))
    return made


def largest(found, wanted):
    return max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True))


def difference(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


# Branches in one pack, and a prefix of several packs.
ONE, SEVERAL = (0, 1 << 30), (15, 10)


CASES = [(name, SEVERAL, None) for name in KIND_OF]
CASES += [(names[0], ONE, None) for names in KINDS.values()]
CASES += [("qwen3_moe", SEVERAL, Lora(4, 8.0, "all-linear", 0))]


@pytest.mark.parametrize(("name", "packs", "lora"), CASES)
def test_a_replayed_pass_gives_the_log_probabilities_and_the_gradient_of_a_plain_reference(name, packs, lora, tmp_path):
    policy = Policy(make(tmp_path, name, MADE[name]), CPU, torch.float32, lora)
    if lora is not None:
        # A new adapter changes nothing, and half of its gradient is 0.
        torch.nn.init.normal_(policy.master, std=0.1, generator=torch.Generator().manual_seed(0))
        policy.refresh()
    mixture = policy.routers.found.require_mixture()
    routings = [drawn(ids, mixture) for ids in sequences()]
    own, gradient = packed(policy, [None] * len(routings), *packs)
    gradient = gradient.clone()
    found, replayed = packed(policy, routings, *packs)
    replayed = replayed.clone()
    wanted, reference = expected(name, policy, routings, packs[0])
    assert largest(found, wanted) <= 1e-4 < 1e-2 < largest(found, own)
    assert difference(replayed, reference) <= 1e-4 < 1e-2 < difference(replayed, gradient)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "deepseek_v3"])
def test_a_replay_of_the_routers_own_choice_changes_nothing_and_differs_nowhere(name, tmp_path):
    policy = Policy(make(tmp_path, name, MADE[name]), CPU, torch.float32)
    own, gradient = packed(policy, [None] * 4, *ONE)
    gradient = gradient.clone()
    policy.routers.reset()
    found, replayed = packed(policy, own_routing(policy), *ONE)
    assert largest(found, own) <= 1e-6
    assert difference(replayed, gradient) <= 1e-6
    metrics = policy.routers.metrics(World())
    assert metrics["router_replay/replayed_fraction"] == 1
    assert metrics["router_replay/differing_token_fraction"] == 0


def test_layers_that_are_computed_again_and_layers_that_fsdp_divides_replay_the_same(tmp_path):
    folder = make(tmp_path, "qwen3_moe", MADE["qwen3_moe"])
    policy = Policy(folder, CPU, torch.float32)
    mixture = policy.routers.found.require_mixture()
    routings = [drawn(ids, mixture) for ids in sequences()]
    wanted, gradient = packed(policy, routings, *SEVERAL)
    gradient = gradient.clone()
    recompute_layers(policy.model)
    found, again = packed(policy, routings, *SEVERAL)
    assert largest(found, wanted) == 0
    assert torch.equal(again, gradient)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        sharded = ShardedPolicy(folder, CPU, World(), torch.float32)
        found, _ = packed(sharded, routings, *SEVERAL)
        gradients = sharded.gradients()
        assert sharded.routers.metrics(World())["router/max_vio/max"] > 0
        sharded.routers.reset()
        sharded.idle(backward=True)
        sharded.idle_prefix().backward()
        # What a rank computes only to take part in others' passes is no load.
        assert sharded.routers.metrics(World()) == {}
    finally:
        dist.destroy_process_group()
    assert largest(found, wanted) <= 1e-5
    for name, each in policy._views(gradient).items():
        torch.testing.assert_close(gradients[name], each, atol=1e-4, rtol=1e-4)


def shared(first, second, sampled=(), known=(True, True)):
    """Returns the experts of a token that two samples share: that each has recorded, and who sampled it."""
    made = []
    for number, expert in enumerate((first, second)):
        trained = np.array([False, number in sampled, True])
        routing = Routing(np.full((2, 1, 1), expert, np.uint8), np.array([True, known[number]]))
        each = chain(number, np.array([1, 2, 5 - number]), trained, np.zeros(3, np.float32), 1.0)
        made.append(replace(each, routing=routing))
    share_routing(made)
    assert made[0].routing.experts[1].tolist() == made[1].routing.experts[1].tolist()
    return made[1].routing.experts[1, 0, 0]


def test_a_token_that_samples_share_has_the_routing_of_the_sample_that_sampled_it_else_that_of_the_first():
    assert shared(7, 8) == 7
    assert shared(7, 8, sampled=(1,)) == 8
    assert shared(7, 8, sampled=(0, 1)) == 7
    assert shared(7, 8, sampled=(0, 1), known=(False, True)) == 8


MIXTURE = Mixture(layers=3, routed=(1, 2), experts=300, top_k=2)
ROWS = np.array([[[0, 0], [5, 6], [7, 8]], [[0, 0], [1, 0], [299, 2]]])


def npy_with_header(header):
    written = header.encode()
    return b"\x93NUMPY\x01\x00" + len(written).to_bytes(2, "little") + written


def npy(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        ("npy", npy(ROWS.astype(np.uint16))),
        ("npy", npy(ROWS.astype(np.int32))),
        ("int32", ROWS.astype("<i4").tobytes()),
        ("uint16", ROWS.astype("<u2").tobytes()),
    ],
)
def test_rows_are_read_in_every_form_and_only_those_of_layers_with_experts_count(form, rows):
    found, left_out = read_routing([RecordedRows(1, 3, form, rows)], 5, MIXTURE)
    assert left_out == 0
    assert found.known.tolist() == [False, True, True, False, False]
    assert found.experts[1:3].tolist() == ROWS[:, 1:].tolist()


def test_a_token_keeps_the_row_of_the_first_call_that_has_it_and_a_row_that_names_an_expert_twice_is_none():
    later = np.full((3, 3, 2), 9) + np.arange(2)
    twice = np.zeros((1, 3, 2), int)
    recorded = [
        RecordedRows(0, 1, "int32", twice.astype("<i4").tobytes()),
        RecordedRows(1, 3, "int32", ROWS.astype("<i4").tobytes()),
        RecordedRows(2, 5, "uint8", later.astype("<u1").tobytes()),
    ]
    found, _ = read_routing(recorded, 4, MIXTURE)
    assert found.known.tolist() == [False, True, True, True]
    assert found.experts[1:, 0].tolist() == [[5, 6], [1, 0], [9, 10]]


@pytest.mark.parametrize(
    ("form", "rows", "match"),
    [
        ("npy", npy(ROWS[:, :2].astype(np.uint8)), r"uint8 \[2, 2, 2\] instead of integers \[2, 3, 2\]"),
        ("npy", npy_with_header("{'descr': [], 'fortran_order': False, 'shape': (None, 3, 2)}"), "no file|descr|shape"),
        ("npy", npy_with_header("(" * 9000), "no file|parse"),
        ("npy", npy_with_header("{[]: 1}"), "no file of NumPy's"),
        ("npy", npy(ROWS.astype(np.float32)), "float32"),
        ("npy", npy(ROWS.astype(np.uint16))[:-1], "buffer"),
        ("npy", b"no file", "magic"),
        ("npy", b"", "magic"),
        ("int32", ROWS.astype("<i4").tobytes()[:-4], r"int32 \[11\] instead of integers \[2, 3, 2\]"),
        ("int32", b"123", "buffer"),
        ("int32", (ROWS + 1).astype("<i4").tobytes(), "name expert 300, and the model has 300"),
        ("int32", (ROWS - 1).astype("<i4").tobytes(), "name expert -1, and the model has 300"),
        ("pickle", b"", "unknown form 'pickle'"),
    ],
)
def test_rows_that_are_not_of_the_model_are_refused_with_what_they_are(form, rows, match):
    with pytest.raises(ValueError, match=match):
        read_routing([RecordedRows(1, 3, form, rows)], 5, MIXTURE)


@pytest.mark.parametrize(
    ("form", "rows"),
    [("npy", npy(ROWS[:1].astype(np.uint8))), ("uint16", ROWS[:1].astype("<u2").tobytes()), ("int32", b"")],
)
def test_a_call_with_another_number_of_rows_than_tokens_is_left_out_and_counted(form, rows):
    whole = RecordedRows(3, 5, "int32", ROWS.astype("<i4").tobytes())
    found, left_out = read_routing([RecordedRows(1, 3, form, rows), whole], 5, MIXTURE)
    assert (found.known.tolist(), left_out) == ([False, False, False, True, True], 1)


def test_with_one_expert_a_token_a_row_of_zeros_in_all_layers_with_experts_is_unknown():
    rows = np.array([[[5], [0], [0]], [[5], [0], [1]]], np.uint8)
    found, _ = read_routing([RecordedRows(0, 2, "uint8", rows.tobytes())], 2, Mixture(3, (1, 2), 8, 1))
    assert found.known.tolist() == [False, True]


def recorded_rows(prompt, reply, group, trial, reward, form="uint8", experts=4):
    ids = np.array(prompt + reply)
    rows = np.stack([np.stack([ids % experts, (ids + 1 + ids % 2) % experts], -1)] * 2, 1)[:-1]
    if form == "npy":
        payload = npy(rows.astype(np.uint8))
    else:
        payload = rows.astype("<i4" if form == "int32" else "<u1").tobytes()
    named = {"start": 0, "end": len(ids) - 1, "form": form, "rows": payload}
    return row(prompt, reply, reward, group, trial, routed_experts=[named])


def batch_of(form="uint8", experts=4):
    prompt = list(range(3, 15))
    replies = [[20, 21, 22, 23], [30, 31, 32]]
    return [
        recorded_rows(prompt, reply, "g", f"t{number}", float(number), form, experts)
        for number, reply in enumerate(replies)
    ]


def without_a_choice(rows):
    named = [each["routed_experts"][0] for each in rows]
    return [
        row | {"routed_experts": [each | {"rows": bytes(len(each["rows"]))}]}
        for row, each in zip(rows, named, strict=True)
    ]


def one_row_short(rows):
    return [
        row | {"routed_experts": [each | {"rows": each["rows"][:-4]} for each in row["routed_experts"]]} for row in rows
    ]


@pytest.fixture
def run(make_run, tmp_path):
    made = make_run()
    made.model = make(tmp_path / "mixture", "qwen3_moe", MADE["qwen3_moe"], torch.bfloat16)
    return made


def test_a_step_replays_the_experts_of_its_batch_whatever_form_they_have_and_without_the_setting_ignores_them(run):
    trainer = Trainer(CPU, 64)
    base = run.base(trainer)["checkpoint"]

    def step(rows, **settings):
        return trainer.train_step(run.request(base, rows, **settings), Progress())["metrics"]

    made = [step(batch_of(form), enable_router_replay=True) for form in ("int32", "npy")]
    assert made[0]["router_replay/replayed_fraction"] == 1
    assert 0 < made[0]["router_replay/differing_choice_fraction"] <= made[0]["router_replay/differing_token_fraction"]
    assert made[0]["router/max_vio/max"] >= made[0]["router/max_vio/mean"] > 0
    assert made[0]["actor/grad_norm"] == made[1]["actor/grad_norm"]
    without = step(batch_of())
    assert without["actor/grad_norm"] != made[0]["actor/grad_norm"]
    assert not [name for name in without if name.startswith("router_replay/")]
    one_lacks = batch_of()
    one_lacks[1]["routed_experts"] = []
    # The prompt of 12 tokens has the other one's record; the last sampled token is no input.
    assert step(one_lacks, enable_router_replay=True)["router_replay/replayed_fraction"] == pytest.approx(15 / 17)


def test_a_batch_that_was_not_made_for_replay_is_trained_without_it_also_when_the_setting_is_on(run):
    trainer = Trainer(CPU, 64)
    base = run.base(trainer)["checkpoint"]

    def metrics(rows, setting):
        return trainer.train_step(run.request(base, rows, enable_router_replay=setting), Progress())["metrics"]

    older = [{name: value for name, value in each.items() if name != "routed_experts"} for each in batch_of()]
    without, asked = metrics(older, False), metrics(older, True)
    assert asked["actor/grad_norm"] == without["actor/grad_norm"]
    assert {name: value for name, value in asked.items() if name.startswith("router_replay/")} == {
        "router_replay/replayed_fraction": 0
    }


def test_the_record_is_read_only_for_a_replay_and_is_dropped_when_the_routing_is_built(run, tmp_path):
    settings = parse_settings(run.request(tmp_path, batch_of(), enable_router_replay=True)["trainer"])
    path, sha256 = write_batch(tmp_path, batch_of())
    assert all(each.routed_experts is None for each in read_batch(path, sha256, 0))
    prepared = prepare(read_batch(path, sha256, 0, with_experts=True), settings, 0)
    routed = with_routing(prepared, Mixture(2, (0, 1), 4, 2))
    assert all(each.routing.known.all() for each in routed.chains)
    assert all(each.routed_experts is None for each in routed.samples)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([each | {"routed_experts": []} for each in batch_of()], "returned usable experts .* for no token"),
        (without_a_choice(batch_of()), "returned usable experts .* for no token"),
        (one_row_short(batch_of()), r"for no token \(2 calls have another number of rows"),
        (batch_of(experts=9), "of trial t0 are not of this model: they name expert 8, and the model has 4"),
    ],
)
def test_a_batch_whose_experts_cannot_be_replayed_is_refused_with_the_trial_and_what_to_do(run, rows, match):
    trainer = Trainer(CPU, 64)
    base = run.base(trainer)["checkpoint"]
    with pytest.raises(GpuWorkerError, match=f"{match}.*enable_router_replay") as caught:
        trainer.train_step(run.request(base, rows, enable_router_replay=True), Progress())
    assert (caught.value.kind, caught.value.retryable) == ("BadBatch", False)


def test_a_model_that_cannot_replay_is_refused_before_the_run_and_in_its_step(tiny_model, make_run, run, monkeypatch):
    with pytest.raises(GpuWorkerError, match=r"it is no mixture of experts.*leave `enable_router_replay` out"):
        check_model(tiny_model, {"enable_router_replay": True})
    check_model(run.model, {"enable_router_replay": True})
    dense, trainer = make_run(), Trainer(CPU, 64)
    base = dense.base(trainer)["checkpoint"]
    with pytest.raises(GpuWorkerError, match="it is no mixture of experts") as caught:
        trainer.train_step(dense.request(base, batch_of(), enable_router_replay=True), Progress())
    assert caught.value.kind == "BadSettings"
    monkeypatch.setattr(router_replay, "TOPK", ())
    trainer, base = Trainer(CPU, 64), run.base(Trainer(CPU, 64))["checkpoint"]
    with pytest.raises(GpuWorkerError, match="does not choose by `topk`"):
        trainer.train_step(run.request(base, batch_of(), enable_router_replay=True), Progress())
    monkeypatch.setattr(router_replay, "PROVEN", set())
    with pytest.raises(GpuWorkerError, match="of kind Qwen3MoeSparseMoeBlock is not one of those"):
        check_model(run.model, {"enable_router_replay": True})
