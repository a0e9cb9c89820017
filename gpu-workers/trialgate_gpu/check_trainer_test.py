import json
import threading

import pytest

import tinker_server

from . import check_trainer
from .backends.tinker.keys import VARIABLE
from .check_trainer import check_model, check_server
from .errors import GpuWorkerError
from .settings import TrainerServer

LORA = {"lora_rank": 4, "lora_alpha": 8.0, "target_modules": ["q_proj", "down_proj"], "seed": 0}


def with_setting(model, folder, **changes):
    folder.mkdir()
    given = json.loads((model / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(given | changes))
    return folder


def test_a_supported_model_passes_without_its_weights(tiny_model, tmp_path):
    folder = with_setting(tiny_model, tmp_path / "no-weights")
    check_model(folder, {"lora_rank": 0})
    check_model(folder, LORA)


def test_of_a_multimodal_model_the_text_model_is_checked(tiny_model, tmp_path):
    text = {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 64}
    folder = with_setting(tiny_model, tmp_path / "gemma", model_type="gemma3", text_config=text)
    check_model(folder, {"lora_rank": 0}, "cpu")
    with pytest.raises(GpuWorkerError, match=r"'out_proj'.* has down_proj"):
        # The tower's layers have this name.
        check_model(folder, LORA | {"target_modules": ["out_proj"]})


def test_a_layer_that_the_model_does_not_have_is_refused_with_those_that_it_has(tiny_model):
    with pytest.raises(GpuWorkerError, match=r"'c_attn'.* has .*q_proj.* Name some of these"):
        check_model(tiny_model, LORA | {"target_modules": ["q_proj", "c_attn"]})


def test_a_model_with_code_of_its_own_is_refused_without_a_question(tiny_model, tmp_path):
    own = {"auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}, "model_type": "own"}
    with pytest.raises(GpuWorkerError, match="cannot be trained"):
        check_model(with_setting(tiny_model, tmp_path / "own", **own), {"lora_rank": 0})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "nosuchmodel"}, "nosuchmodel"),
        ({"model_type": "t5"}, "T5"),
        ({"model_type": "qwen3_vl", "text_config": {"num_hidden_layers": 4}}, "multimodal"),
        ({"model_type": "jamba"}, "linear_attention"),
    ],
)
def test_a_model_that_the_trainer_does_not_support_is_refused_with_the_reason(tiny_model, tmp_path, changes, why):
    with pytest.raises(GpuWorkerError, match=f"cannot be trained: .*{why}.*choose another model"):
        check_model(with_setting(tiny_model, tmp_path / "other", **changes), {"lora_rank": 0})


def test_a_model_is_refused_that_fits_into_no_memory_of_this_machine_whatever_occupies_it_now(tiny_model, monkeypatch):
    check_model(tiny_model, {"lora_rank": 0}, "cpu")
    monkeypatch.setattr(check_trainer, "total_main_memory", lambda: 1 << 20)
    with pytest.raises(GpuWorkerError, match=r"does not fit on 2 rank\(s\).*the main memory has .*`ranks`") as refused:
        check_model(tiny_model, {"lora_rank": 0}, "cpu", 2)
    assert refused.value.kind == "DoesNotFit"
    check_model(tiny_model, {"lora_rank": 0})


@pytest.fixture
def server(tiny_model, tmp_path):
    given = [str(tiny_model), "--state", str(tmp_path / "state"), "--key", "tml-secret"]
    _, http = tinker_server.start(tinker_server.parse_arguments(given))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield TrainerServer(f"http://127.0.0.1:{http.server_address[1]}", None, 600.0)
    http.shutdown()


def test_a_trainer_server_must_take_the_key_and_serve_the_model(tiny_model, server, tmp_path, monkeypatch):
    with pytest.raises(GpuWorkerError, match=r"wants a key.*`trainer_keys`"):
        check_server(str(tiny_model), server)
    key = tmp_path / "key"
    key.write_text("tml-secret")
    monkeypatch.setenv(VARIABLE, json.dumps([f"{server.url.removeprefix('http://')}={key}"]))
    check_server(str(tiny_model), server)
    with pytest.raises(GpuWorkerError, match=r"serves .*, not other"):
        check_server("other", server)


def test_a_key_in_a_variable_that_only_the_gpu_worker_has_is_left_to_it(tiny_model, server, monkeypatch):
    monkeypatch.setenv(VARIABLE, json.dumps([f"{server.url.removeprefix('http://')}=ONLY_THE_GPU_WORKER_HAS_THIS"]))
    check_server(str(tiny_model), server)
