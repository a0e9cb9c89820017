"""Tests the sum that says whether a model fits, on models that have shapes and no memory."""

import re
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from conftest import make_tiny_model, row, two_groups

from ..errors import GpuWorkerError
from ..lora import Lora, add_adapter
from ..progress import Progress
from ..train_step import Trainer
from . import activations, placement
from .activations import Passes, kept_by_layers
from .fit import Ranks, main_memory, needed, share_of, what_lacks
from .placement import Placement
from .world import World

BF16, F32, CPU = torch.bfloat16, torch.float32, torch.device("cpu")
WIDTH, HALF, VOCABULARY, HEADS, LAYERS = 64, 32, 1000, 4, 3
ATTENTION = 4 * WIDTH * WIDTH
MLP = 3 * WIDTH * HALF
LAYER = ATTENTION + MLP + 2 * WIDTH
OUTSIDE = 2 * VOCABULARY * WIDTH + WIDTH
TOTAL = OUTSIDE + LAYERS * LAYER
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": HALF, "mlp_only_layers": []}
ADAPTER = Lora(rank=4, alpha=8.0, target_modules=["q_proj"], seed=0)


def shapes_of(kind="llama", lora=None, **settings):
    size = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": HALF, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": WIDTH // HEADS}
    config = AutoConfig.for_model(kind, **(size | heads | {"pad_token_id": 0} | settings))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        if lora is not None:
            add_adapter(model, lora)
    return model


def test_one_rank_needs_master_weights_moments_gradient_and_a_copy_to_compute_with():
    parts = {"float32 weights": 4 * TOTAL, "moments": 8 * TOTAL, "gradient": 4 * TOTAL, "compute weights": 2 * TOTAL}
    assert needed(shapes_of(), 1, BF16, offload=False) == parts
    assert needed(shapes_of(), 1, F32, offload=False)["compute weights"] == 4 * TOTAL


def test_a_rank_of_several_needs_its_part_the_weights_of_two_layers_and_the_largest_gradient_that_is_summed():
    share = TOTAL // 4
    assert needed(shapes_of(), 4, BF16, offload=False) == {
        "float32 weights": 4 * share,
        "moments": 8 * share,
        "gradient": 4 * share,
        "gathered weights": 2 * (OUTSIDE + 2 * LAYER),
        "the head's gradient": 4 * VOCABULARY * WIDTH,
        "gradient while it is summed": (2 + 4) * (VOCABULARY * WIDTH + WIDTH),
    }
    few_words = needed(shapes_of(vocab_size=8), 4, BF16, offload=False)
    assert few_words["gradient while it is summed"] == (2 + 4) * LAYER


def test_offloading_moves_weights_moments_and_gradient_from_the_device_to_main_memory_beside_the_written_state():
    model, share = shapes_of(), TOTAL // 4
    assert not {"float32 weights", "moments", "gradient"} & needed(model, 4, BF16, offload=True).keys()
    state = {"state that is written": 12 * share}
    assert main_memory(model, 4, BF16, offload=False) == state
    kept = {"float32 weights": 4 * share, "moments": 8 * share, "gradient": 4 * share}
    assert main_memory(model, 4, BF16, offload=True) == state | kept


def test_with_an_adapter_only_its_weights_have_moments_and_the_base_is_kept_in_the_compute_dtype():
    model, adapter = shapes_of(lora=ADAPTER), LAYERS * 2 * 4 * WIDTH
    one, four = (needed(model, ranks, BF16, offload=False) for ranks in (1, 4))
    assert (one["moments"], one["compute weights"]) == (8 * adapter, 2 * (TOTAL + adapter))
    assert one["float32 weights of the self-check"] == 4 * (OUTSIDE + LAYER + 2 * 4 * WIDTH)
    assert (four["moments"], four["frozen weights"]) == (8 * adapter // 4, 2 * TOTAL // 4)
    assert "the head's gradient" not in four


def test_a_tensor_with_fewer_rows_than_ranks_is_whole_rows_on_the_first_ranks():
    model = shapes_of("qwen3_moe", **EXPERTS)
    # 6 experts over 4 ranks: the first ones have two of them.
    of_experts = [p for name, p in model.named_parameters() if ".experts." in name]
    assert {p.shape[0] for p in of_experts} == {6}
    even = sum(p.numel() for p in model.parameters()) // 4
    assert share_of(model, 4, trained=True) >= even + sum(p.numel() for p in of_experts) // 12


@pytest.mark.parametrize("offload", [False, True])
def test_the_ranks_of_a_cpu_share_the_main_memory_of_their_host(offload):
    model = shapes_of()
    one = sum((needed(model, 2, BF16, offload=False) | main_memory(model, 2, BF16, offload=False)).values())
    one += sum(Passes(model, BF16, recompute=False).parts(100).values())
    for room, fits in ((2 * one, True), (2 * one - 1, False)):
        assert (what_lacks(model, Ranks(CPU, 2, 2, BF16, 100, offload), room) is None) == fits


@pytest.mark.parametrize(("kind", "settings"), [("llama", {}), ("qwen3_moe", EXPERTS)], ids=["llama", "qwen3_moe"])
@pytest.mark.parametrize(("ranks", "reads_it_whole"), [(1, True), (4, False)])
def test_main_memory_has_room_for_the_whole_model_where_one_rank_reads_it(
    monkeypatch, ranks, reads_it_whole, kind, settings
):
    # The state of an adapter is small.
    model, gpu = shapes_of(kind, ADAPTER, **settings), SimpleNamespace(total_memory=1 << 40)
    read = 2 * sum(each.numel() for each in model.parameters())
    assert read > sum(main_memory(model, ranks, BF16, offload=False).values()) * ranks
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    of_ranks = Ranks(torch.device("cuda", 0), ranks, ranks, BF16, 100)
    assert what_lacks(model, of_ranks, read) is None
    assert (what_lacks(model, of_ranks, read - 1) is None) != reads_it_whole


def test_a_model_that_does_not_fit_is_refused_with_the_sum(tmp_path, monkeypatch):
    folder = make_tiny_model(tmp_path / "model")
    monkeypatch.setattr(placement, "main_memory_room", lambda: 1 << 20)
    with pytest.raises(
        GpuWorkerError,
        match=r"does not fit on 1 rank\(s\): each needs .* GiB moments .* GiB activations of 512 tokens .*"
        r" = 0\.0 GiB, and the main memory has 0\.0 GiB; give the deployment `activation_checkpointing: true`, "
        r".*more `ranks` or larger",
    ) as caught:
        Placement(CPU, World(), BF16, pack_tokens=100_000).policy(folder)
    assert caught.value.kind == "DoesNotFit"


def test_a_model_is_not_refused_because_a_full_pack_would_not_fit(tmp_path, monkeypatch):
    folder = make_tiny_model(tmp_path / "model")
    monkeypatch.setattr(placement, "main_memory_room", lambda: 1 << 27)
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert what_lacks(model, Ranks(CPU, 1, 1, BF16, 100_000), 1 << 27)
    Placement(CPU, World(), BF16, pack_tokens=100_000).policy(folder)


def test_the_tokens_that_are_said_to_fit_do_and_one_more_does_not():
    model, room = shapes_of(), 1 << 30
    said = what_lacks(model, Ranks(CPU, 1, 1, F32, 1 << 20), room)
    most = int(re.search(r"`pack_tokens` of at most (\d+)", said)[1])
    assert what_lacks(model, Ranks(CPU, 1, 1, F32, most), room) is None
    assert what_lacks(model, Ranks(CPU, 1, 1, F32, most + 1), room)


def test_a_sequence_that_does_not_fit_is_refused_before_a_pass_with_its_length_the_sum_and_what_to_change(
    make_run, monkeypatch
):
    run, trainer = make_run(), Trainer(CPU, 64)
    base = run.base(trainer)["checkpoint"]
    monkeypatch.setattr(placement, "total_main_memory", lambda: 1 << 24)
    long = [row([3] * 20, [5 + i] * 131_072, i, "g", f"t{i}") for i in range(2)]
    with pytest.raises(
        GpuWorkerError,
        match=r"with a sequence of 131,091 tokens: .* GiB activations of 131,091 tokens .* = .* GiB, and the main "
        r"memory has 0\.0 GiB; shorten the longest sequences, of which at most [\d,]+ tokens fit "
        r"\(`max_prompt_length`, `budgets.tokens`\), give the deployment `activation_checkpointing: true`",
    ) as caught:
        trainer.train_step(run.request(base, long), Progress())
    assert (caught.value.kind, caught.value.retryable) == ("DoesNotFit", False)
    # The same trainer goes on with sequences that fit.
    assert trainer.train_step(run.request(base, two_groups()), Progress())["skipped"] is None


def test_what_a_models_passes_keep_is_counted_once_however_many_steps_have_a_sequence_longer_than_a_pack(
    make_run, monkeypatch
):
    counted = []

    def count(model, dtype):
        counted.append(model)
        return kept_by_layers(model, dtype)

    monkeypatch.setattr(activations, "kept_by_layers", count)
    run, trainer = make_run(), Trainer(CPU, 64)
    parent = run.base(trainer)["checkpoint"]
    for version in (1, 2, 3):
        long = [row([3] * 20, [5 + i] * (80 + version), i, "g", f"t{i}") for i in range(2)]
        made = trainer.train_step(run.request(parent, long, version), Progress())
        parent = made["checkpoint"]
        assert made["metrics"]["actor/updates"] == 1
    assert len(counted) == 1
    # Another sum of the same model counts nothing again; another dtype and another model do.
    (model,) = counted
    Passes(model, F32, recompute=True)
    Passes(model, BF16, recompute=True)
    assert len(counted) == 2
    Passes(shapes_of(), BF16, recompute=True)
    assert len(counted) == 3
