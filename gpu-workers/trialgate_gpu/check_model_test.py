import json

import pytest

from .check_model import check_model
from .errors import GpuWorkerError

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
    ],
)
def test_a_model_that_the_trainer_does_not_support_is_refused_with_the_reason(tiny_model, tmp_path, changes, why):
    with pytest.raises(GpuWorkerError, match=f"cannot be trained: .*{why}.*choose another model"):
        check_model(with_setting(tiny_model, tmp_path / "other", **changes), {"lora_rank": 0})
