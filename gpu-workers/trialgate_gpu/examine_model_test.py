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
from .errors import GpuWorkerError
from .examine_model import MISSING, TOLERANCE, UNREACHABLE, Deviations, Finding, examine, to_json
from .families_test import REFUSED, SMALL
from .logit_shape import PLAIN, LogitShape
from .multimodal import TextModel
from .policy import load_model
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


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("sharded_deviation", "one alone: FSDP2 does not divide it (no way)"),
        ("dist.init_process_group", "could not be tried here (no way)"),
    ],
)
def test_a_model_that_ranks_cannot_divide_can_be_trained_on_one_and_the_finding_says_why(
    tmp_path, monkeypatch, where, why
):
    def fail(*_, **__):
        raise RuntimeError("no way\nnor another")

    monkeypatch.setattr(f"{examine_model.__name__}.{where}", fail)
    found = examine(configured(tmp_path, "llama"), "llama")
    assert (found.reason, found.deviations.ranks_gradient, found.deviations.no_ranks) == (None, None, why)


@pytest.mark.parametrize("where", ["write_small", "differences", "sharded_deviation"])
def test_that_memory_ran_out_is_said_of_no_model(tmp_path, monkeypatch, where):
    def fail(*_):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(examine_model, where, fail)
    with pytest.raises(torch.OutOfMemoryError):
        examine(configured(tmp_path, "llama"), "llama")


NAN = float("nan")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"packed_alone": NAN}, "log-probabilities are not finite"),
        ({"alone_eager": NAN}, "log-probabilities are not finite"),
        ({"gradient": NAN}, "the gradient of a small model of its configuration is not finite"),
        ({"lora_gradient": NAN}, "the gradient of an adapter of a small model of its configuration is not finite"),
        ({"lora_gradient": 0.5}, "the gradient of an adapter .* differs from autograd's by 0.5"),
    ],
)
def test_a_deviation_that_is_not_finite_is_a_fault_and_null_in_the_output(changes, why):
    sound = {name: 0.0 for name in ("packed_alone", "alone_eager", "gradient", "ranks_gradient", "lora_gradient")}
    assert Deviations(**sound).fault is None
    deviations = Deviations(**sound | changes)
    assert re.search(why, deviations.fault)
    assert "damaged" not in deviations.fault
    ((name, value),) = changes.items()
    assert json.loads(to_json(Finding("m", deviations=deviations)))["deviations"][name] == (
        value if value == value else None
    )


# A small Gemma 3 has six layers and a small Gemma 3n ten, so these take many seconds: `npm test` is without them.
SLOW = [pytest.param(kind, marks=pytest.mark.processes) for kind in ("gemma3_text", "gemma3n_text")]


@pytest.mark.parametrize("kind", ["gemma2", "gemma4_text", "nanochat", *SLOW])
def test_the_small_model_of_a_family_with_a_cap_does_not_pass_without_the_cap(tmp_path, monkeypatch, kind):
    caps = {} if LogitShape.of(AutoConfig.for_model(kind)).cap else {"final_logit_softcapping": 30.0}
    folder = configured(tmp_path, kind, **caps)
    monkeypatch.setattr(LogitShape, "of", lambda _: PLAIN)
    found = examine(folder, kind)
    assert found.deviations.alone_eager > 10 * TOLERANCE
    assert "its attention or its head is of another kind" in found.reason


def test_of_a_multimodal_model_the_text_model_is_compared_with_the_multimodal_one(tmp_path):
    found = examine(configured(tmp_path, "gemma3"), "gemma")
    assert (found.reason, found.family, found.kept) == (None, "gemma3", ["vision_config"])
    assert found.architecture == "Gemma3ForConditionalGeneration"
    assert found.parameters < 4e9 and found.attention == {"sliding_attention": 22, "full_attention": 4}
    assert 0 < found.deviations.alone_eager < TOLERANCE / 10


def test_a_multimodal_class_that_needs_its_towers_for_text_is_refused_with_that(tmp_path):
    text = {"model_type": "llama", "pad_token_id": 0}
    folder = configured(tmp_path, "idefics3", text_config=text, pad_token_id=0)
    reason = examine(folder, "idefics").reason
    assert re.search(r"multimodal \(`vision_config`\), and its class needs its towers for text too", reason), reason


def test_a_leftover_setting_of_logits_that_the_family_does_not_apply_is_named(tmp_path):
    found = examine(configured(tmp_path, "llama", logits_scaling=8.0), "llama")
    assert "(the trainer applies its `logits_scaling`; remove from `config.json`" in found.reason


@pytest.mark.parametrize("method", ["awq", "gptq", "fp8", "mxfp4"])
def test_a_model_with_quantized_weights_is_refused_with_their_form(tmp_path, method):
    folder = changed(configured(tmp_path, "llama"), quantization_config={"quant_method": method})
    assert f"its weights are quantized ({method}); convert them" in examine(folder, "q", run=False).reason


@pytest.mark.parametrize("error", [ImportError("no kernels"), AttributeError("no such part")])
def test_a_model_whose_loading_fails_in_a_library_is_a_bad_model(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    with pytest.raises(GpuWorkerError, match=str(error)) as caught:
        load_model(tmp_path, TextModel(AutoConfig.for_model("llama")))
    assert caught.value.kind == "BadModel"


def test_where_all_linear_is_refused_the_names_that_can_have_an_adapter_are_given(tmp_path):
    found = examine(configured(tmp_path, "deepseek_v3"), "deepseek", run=False)
    assert found.lora == ["all-linear"] or {"o_proj", "q_b_proj"} <= set(found.lora)


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
        raise ValueError("no such size:\n  none\n  at all")

    monkeypatch.setattr(examine_model, "write_small", fail)
    found = examine(configured(tmp_path, "llama"), "llama")
    assert (found.reason, found.deviations) == (None, None)
    assert found.not_run == "no small model of its configuration runs (ValueError: no such size: none)"


def test_a_family_whose_small_model_breaks_its_own_rules_is_tried_and_the_finding_has_the_error(tmp_path):
    found = examine(configured(tmp_path, "mpt", n_layers=2), "mpt")
    assert (found.reason, found.deviations) == (None, None)
    assert re.fullmatch(r"no small model of its configuration runs \(\w+: .*[^:]\)", found.not_run)


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
        ("qwen3_vl", {}, "multimodal \\(`vision_config`\\), and transformers has no class for its text model alone"),
        ("phi4_multimodal", {}, "multimodal .*its text model has no configuration of its own"),
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


# A start of the program takes seconds, so only tests of its environment start it.
def program(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["examine_model", *map(str, arguments)])
    examine_model.main()


def test_a_name_without_a_configuration_ends_with_what_is_missing(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        program(monkeypatch, tmp_path)
    assert ended.value.code == MISSING
    assert "has no config.json" in capsys.readouterr().out


def test_the_program_prints_what_it_found(tmp_path, monkeypatch, capsys):
    folder = configured(tmp_path, "llama", **SMALL)
    program(monkeypatch, folder, "--name", "mine", "--no-run")
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
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


def test_a_hub_that_cannot_be_asked_is_another_end_than_a_model_that_is_missing(monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # The library has read the variable already.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SystemExit) as ended:
        program(monkeypatch, "org/llama")
    assert ended.value.code == UNREACHABLE
    assert re.search(r"could not be downloaded \(HF_HUB_OFFLINE is set\): \w+Error: \S", capsys.readouterr().out)
