import logging

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from conftest import row, two_groups

from .families_test import EXPERTS, SMALL, TRAINED
from .lora import Lora, add_adapter
from .pack import chain
from .performance import ModelFlops, peak_by_name, peak_tflops
from .progress import LOG_SECONDS, Progress, text_of
from .train_step import Trainer

CPU = torch.device("cpu")


def model_of(kind, **settings):
    config = AutoConfig.for_model(kind, **SMALL | settings)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def sequence(ids, sample=0):
    ids = np.asarray(ids)
    return chain(sample, ids, np.arange(len(ids)) > 0, np.zeros(len(ids), np.float32), 1.0)


def counted_by_torch(model, length):
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.arange(2, length + 2)[None], use_cache=False).logits.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("rank", [0, 4])
def test_the_counted_operations_of_a_model_are_those_that_torch_counts(kind, rank):
    model = model_of(kind)
    if rank:
        add_adapter(model, Lora(rank=rank, alpha=8.0, target_modules="all-linear", seed=0))
        # torch leaves out gradients by inputs that nothing trained lies before.
        model.get_input_embeddings().weight.requires_grad_(True)
    length = 24
    counter = ModelFlops(model)
    tokens, found = counter.of_chains([sequence(np.arange(length + 1))])
    hidden_pairs = length * length - length * (length + 1) // 2
    # torch's plain attention also computes the keys that the mask hides.
    assert tokens == length
    assert found + hidden_pairs * counter.of_pair.total() == pytest.approx(counted_by_torch(model, length), rel=1e-6)


def test_of_a_mixture_the_experts_count_that_a_token_uses():
    used, all_of_them = (ModelFlops(model_of("mixtral", **EXPERTS | {"num_experts_per_tok": n})) for n in (2, 4))
    experts = sum(each.numel() for each in model_of("mixtral", **EXPERTS).parameters() if each.dim() == 3)
    assert all_of_them.of_token - used.of_token == 6 * experts / 2 > 0


def test_a_token_that_several_samples_share_counts_once_and_a_window_bounds_its_keys():
    counter = ModelFlops(model_of("mistral", sliding_window=4))
    one = counter.of_chains([sequence([5, 6, 7, 8, 9, 10, 11])])
    assert counter.of_chains([sequence([5, 6, 7, 8, 9, 10, 11], n) for n in range(3)])[0] == one[0] == 6
    assert counter.of_chains([sequence([5, 6, 7, 8]), sequence([5, 6, 9, 8], 1)])[0] == 4
    body = 6 * counter.of_token + 6 * counter.of_trained_token
    assert one[1] == body + (1 + 2 + 3 + 4 + 4 + 4) * counter.of_pair.total()


def test_a_step_says_how_fast_it_was_how_much_memory_it_took_and_how_long_its_phases_were(make_run):
    run, trainer = make_run(), Trainer(CPU, 64, peak=0.5)
    settings = {"ppo_mini_batch_size": 4, "ppo_epochs": 2}
    made = trainer.train_step(run.request(run.base(trainer)["checkpoint"], two_groups(), **settings), Progress())
    found = made["metrics"]
    phases = ("load_batch", "forward_backward", "reduce", "optimizer", "save_checkpoint", "old_log_prob", "step")
    assert all(found[f"timing_s/{phase}"] >= 0 for phase in phases)
    # Both groups have 20 prompt tokens and 26 sampled ones, of which each sample's last one predicts nothing.
    assert found["tokens/distinct"] == 2 * 2 * (20 + 26 - 4)
    ratio = found["perf/trained_tokens_per_second"] / found["perf/distinct_tokens_per_second"]
    assert ratio == pytest.approx(2 * found["tokens/trained"] / found["tokens/distinct"], rel=1e-4)
    assert found["perf/mfu/actor"] == pytest.approx(found["perf/model_tflops_per_rank"] / 0.5, rel=1e-4)
    assert found["perf/idle_share/max"] == 0
    assert 0.1 < found["perf/max_host_memory_gb"] < 64


def test_mfu_is_left_out_where_the_devices_peak_is_not_known(make_run, trainer):
    run = make_run()
    rows = [row([5, 6], [9, 10], 1.0, "g", "a"), row([5, 6], [11, 12], 0.0, "g", "b")]
    found = trainer.train_step(run.request(run.base(trainer)["checkpoint"], rows), Progress())["metrics"]
    assert "perf/mfu/actor" not in found and found["perf/model_tflops_per_rank"] > 0
    assert peak_tflops(CPU, None) is None and peak_tflops(CPU, 2.0) == 2.0


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989),
        ("NVIDIA H20", 148),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
    ],
)
def test_the_peak_of_a_known_gpu_is_found_by_its_name(name, peak):
    assert peak_by_name(name) == peak


def test_progress_is_logged_at_each_new_phase_and_every_few_seconds_in_one(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr("trialgate_gpu.progress.time.monotonic", lambda: now[0])
    log = logging.getLogger("trialgate.gpu")
    with caplog.at_level(logging.INFO, logger=log.name):
        progress = Progress(lambda text: log.info("%s", text))
        progress.show("read batch")
        for pack in range(1, 6):
            progress.show("train", epoch=0, update=2, updates=4, pack=pack, packs=5, tokens=1000 * pack)
            now[0] += LOG_SECONDS / 2
    lines = ["read batch", *(f"train, update 2 of 4, pack {n} of 5, {n},000 tokens" for n in (1, 3, 5))]
    # torch logs from the thread of a checkpoint that the test before this one saved.
    assert [record.message for record in caplog.records if record.name == log.name] == lines


def test_progress_as_text_names_each_number():
    assert text_of({"phase": "train", "epoch": 1, "pack": 2, "packs": 3}) == "train, epoch 2, pack 2 of 3"
    assert text_of({"phase": "load", "replica": "http://a"}) == "load, replica http://a"


def test_a_layer_that_keeps_a_state_counts_its_weights_and_no_keys():
    model = model_of("lfm2", **TRAINED["lfm2"])
    flops = ModelFlops(model)
    assert flops.of_pair.keys() == {0, None}
    matrices = [each for each in model.model.layers.parameters() if each.dim() > 1]
    assert flops.of_token == 6 * sum(each.numel() for each in matrices)
