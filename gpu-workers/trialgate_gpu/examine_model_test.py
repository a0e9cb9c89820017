import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from transformers import AutoConfig

from . import attention, examine_model
from .examine_model import MISSING, TOLERANCE, examine
from .families_test import REFUSED, SMALL, TRAINED, make
from .logit_shape import LogitShape
from .small_model import small_config


def configured(folder, kind, **settings):
    """Writes the configuration of a model whose weights are not there."""
    AutoConfig.for_model(kind, **settings).save_pretrained(folder)
    return folder


def test_a_model_that_can_be_trained_is_described_without_its_weights(tmp_path):
    granite = {"num_hidden_layers": 40, "logits_scaling": 16.0, "tie_word_embeddings": True}
    found = examine(configured(tmp_path, "granite", **granite), "ibm/granite", run=False)
    assert (found.reason, found.family, found.architecture) == (None, "granite", "GraniteForCausalLM")
    assert found.attention == {"full_attention": 40}
    assert (found.logit_scale, found.logit_cap, found.tied_head) == (1 / 16, None, True)
    assert (found.lora, found.experts, found.deviations) == (["all-linear"], None, None)
    assert found.parameters > 1e9
    gemma = examine(configured(tmp_path / "gemma", "gemma2"), "gemma", run=False)
    assert gemma.attention == {"sliding_attention": 13, "full_attention": 13}
    assert (gemma.window, gemma.logit_cap) == (4096, 30.0)


def test_the_installed_vllm_is_asked_for_the_architecture(tmp_path):
    pytest.importorskip("vllm.version")
    assert examine(configured(tmp_path, "qwen3"), "qwen", run=False).vllm is True
    assert examine(configured(tmp_path / "small", "nanochat"), "small", run=False).vllm is not None
    assert examine_model._vllm_has("NoSuchForCausalLM") is False


@pytest.mark.parametrize("kind", ["qwen3_moe", "gemma2"])
def test_a_small_model_of_the_configuration_is_compared_with_plain_pytorch(tmp_path, kind):
    found = examine(configured(tmp_path, kind), kind)
    assert found.reason is found.not_run is None
    differences = (found.deviations.packed_alone, found.deviations.alone_eager, found.deviations.gradient)
    assert 0 < max(differences) < TOLERANCE / 10
    assert 0 < found.deviations.lora_gradient < TOLERANCE / 10
    assert found.deviations.ranks_gradient < TOLERANCE / 10


def test_a_model_that_ranks_cannot_divide_can_be_trained_on_one(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no way to divide it")

    monkeypatch.setattr(examine_model, "sharded_deviation", fail)
    found = examine(configured(tmp_path, "llama"), "llama")
    assert (found.reason, found.deviations.ranks_gradient) == (None, None)


def test_a_model_whose_small_one_deviates_is_refused_with_what_deviates(tmp_path, monkeypatch):
    folder = configured(tmp_path, "gpt_oss")
    original = attention.Variant
    with monkeypatch.context() as patch:
        patch.setattr(attention, "Variant", lambda scaling, window, cap, _: original(scaling, window, cap, None))
        found = examine(folder, "oss")
    assert "model oss (gpt_oss) cannot be trained: in a small model" in found.reason
    assert "differ from those of transformers' eager" in found.reason
    monkeypatch.setattr(LogitShape, "backward_", lambda self, gradient, _: gradient)
    assert "differs from autograd's by" in examine(configured(tmp_path / "gemma", "gemma2"), "gemma").reason


def test_of_a_model_whose_small_one_does_not_even_run_in_transformers_no_more_is_said(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("no such size")

    monkeypatch.setattr(examine_model, "write_small", fail)
    found = examine(configured(tmp_path, "llama"), "llama")
    assert (found.reason, found.deviations) == (None, None)
    assert found.not_run == "no small model of its configuration runs (ValueError: no such size)"


@pytest.mark.parametrize("name", REFUSED)
def test_a_family_that_is_refused_is_so_before_any_model_is_made(tmp_path, name, monkeypatch):
    settings, reason = REFUSED[name]
    folder = configured(tmp_path, name, **SMALL | settings)
    monkeypatch.setattr(examine_model, "write_small", None)
    assert f"model NAME ({name}) cannot be trained: " in (why := examine(folder, "NAME").reason)
    assert any(part in why for part in reason.split("|"))


def changed(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        ("qwen3", {"layer_types": ["time_travel"] * 32}, "time_travel|layer_types"),
        (
            "deepseek_v3",
            {"layer_types": ["compressed_sparse_attention"] * 61},
            "does not know its layers of kind compr",
        ),
        ("rwkv", {}, "keep a state .* no `layer_types`"),
        ("llama", {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}, "runs no code of a model"),
        ("gemma3", {}, "multimodal"),
        ("bert", {}, "an encoder"),
        ("falcon", {}, "attention is code of its own"),
        ("llama", {"vocab_size": "many"}, "cannot be trained: .*vocab_size"),
    ],
)
def test_a_configuration_that_the_trainer_cannot_use_is_refused_with_the_reason(tmp_path, kind, changes, why):
    found = examine(changed(configured(tmp_path, kind), **changes), "NAME", run=False)
    assert found.reason is not None
    assert re.search(why, found.reason), found.reason
    assert found.reason.endswith("choose another model")


def test_code_of_a_model_is_no_reason_where_transformers_has_its_family(tmp_path):
    folder = changed(configured(tmp_path, "deepseek_v3"), auto_map={"AutoConfig": "configuration_deepseek.Own"})
    assert examine(folder, "deepseek", run=False).reason is None


def test_a_configuration_without_layer_types_keeps_its_window(tmp_path):
    found = examine(configured(tmp_path, "mistral"), "mistral", run=False)
    assert (found.attention, found.window) == ({"sliding_attention": 32}, 4096)


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_moe", "deepseek_v3", "cohere2", "gpt_oss"])
def test_a_small_configuration_keeps_every_kind_of_layer_and_what_the_logits_are_scaled_with(kind):
    large = AutoConfig.for_model(kind)
    small = small_config(large)
    for name in ("layer_types", "mlp_layer_types"):
        assert set(getattr(small, name, None) or ()) == set(getattr(large, name, None) or ())
    assert small.num_hidden_layers < large.num_hidden_layers
    assert (small.hidden_size, small.vocab_size) == (32, 64)
    assert LogitShape.of(small) == LogitShape.of(large)


def test_a_name_without_a_configuration_ends_with_what_is_missing(tmp_path):
    command = [sys.executable, "-m", "trialgate_gpu.examine_model"]
    ended = subprocess.run([*command, tmp_path], capture_output=True, text=True)
    assert ended.returncode == MISSING
    assert "has no config.json" in ended.stdout


def test_the_program_prints_what_it_found(tmp_path):
    folder = make(tmp_path / "model", "llama", TRAINED["llama"], torch.bfloat16)
    (folder / "model.safetensors").unlink()
    command = [sys.executable, "-m", "trialgate_gpu.examine_model", folder, "--name", "mine", "--no-run"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert (found["model"], found["reason"], found["family"]) == ("mine", None, "llama")


class Hub(BaseHTTPRequestHandler):
    """Has the configuration of one model, and no other file of it."""

    config = json.dumps({"model_type": "llama", "num_hidden_layers": 3}).encode()

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        if self.answer():
            self.wfile.write(self.config)

    def answer(self):
        self.server.asked.append(self.path)
        known = self.path == "/org/llama/resolve/main/config.json"
        self.send_response(200 if known else 404)
        if known:
            self.send_header("ETag", '"1"')
            self.send_header("X-Repo-Commit", "a" * 40)
            self.send_header("Content-Length", str(len(self.config)))
        else:
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
        self.end_headers()
        return known

    def log_message(self, *_):
        pass


def test_of_a_model_on_a_hub_only_the_configuration_is_downloaded_and_into_no_cache(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        hub.asked = []
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(tmp_path)}
        command = [sys.executable, "-m", "trialgate_gpu.examine_model", "--no-run"]
        found, missing = (
            subprocess.run([*command, name], capture_output=True, text=True, env=environment)
            for name in ("org/llama", "org/other")
        )
        hub.shutdown()
    assert json.loads(found.stdout.splitlines()[-1])["attention"] == {"full_attention": 3}
    assert missing.returncode == MISSING
    assert "no model 'org/other'" in missing.stdout
    assert {path for path in hub.asked if "llama" in path} == {"/org/llama/resolve/main/config.json"}
    assert list(tmp_path.rglob("config.json")) == []
