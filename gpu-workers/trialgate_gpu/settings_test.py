import math
from dataclasses import fields

import pytest

from conftest import OPTIM, SETTINGS, TEACHER, request_settings, settings_with

from .errors import GpuWorkerError
from .objectives import OBJECTIVES
from .settings import SCHEMA, Optim, Teacher, TrainerSettings, parse_settings


def refused(request, match):
    with pytest.raises(GpuWorkerError, match=match) as caught:
        parse_settings(request)
    assert caught.value.kind == "BadSettings" and not caught.value.retryable


@pytest.mark.parametrize(("cls", "keys"), [(TrainerSettings, SETTINGS), (Optim, OPTIM), (Teacher, TEACHER)])
def test_the_trainers_settings_classes_have_the_keys_of_the_run_files_schema(cls, keys):
    assert {field.name for field in fields(cls)} == set(keys)


def test_a_run_file_can_name_exactly_the_objectives_that_the_trainer_has():
    assert set(SCHEMA["properties"]["objective"]["enum"]) == set(OBJECTIVES)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"objective": "ppo"}, "trainer.objective: 'ppo' is not one of"),
        ({"rollout_rs": "token_k9"}, "trainer.rollout_rs: 'token_k9' is not one of"),
        (
            {"rollout_rs_threshold": [1.5, 2]},
            r"trainer.rollout_rs_threshold\[0\]: 1.5 is greater than the maximum of 1",
        ),
        ({"rollout_rs_threshold": [0.5]}, r"trainer.rollout_rs_threshold: \[0.5\] is too short"),
        ({"rollout_is_threshold": 0.5}, "trainer.rollout_is_threshold: 0.5 is less than the minimum of 1"),
        ({"clip_ratio_low": 2}, "trainer.clip_ratio_low: 2 is greater than the maximum of 1"),
        ({"clip_ratio_low": "much"}, "trainer.clip_ratio_low: 'much' is not of type 'number'"),
        ({"clip_ratio_c": 1.1}, r"trainer.clip_ratio_c is 1.1, below 1 \+ clip_ratio_high, which is 1.2"),
        ({"clip_ratio_c": math.inf}, "trainer.clip_ratio_c: inf is not of type 'number'"),
        ({"max_skipped_steps": -1}, "trainer.max_skipped_steps: -1 is less than the minimum of 0"),
        ({"ppo_epochs": 1.0}, "trainer.ppo_epochs: 1.0 is not of type 'integer'"),
        ({"ppo_epochs": True}, "trainer.ppo_epochs: True is not of type 'integer'"),
        ({"norm_adv_by_std_in_grpo": 1}, "trainer.norm_adv_by_std_in_grpo: 1 is not of type 'boolean'"),
        ({"optim": {"lr": math.nan}}, "trainer.optim.lr: nan is not of type 'number'"),
        ({"reward_weights": {"tests": math.nan}}, "trainer.reward_weights.tests: nan is not of type 'number'"),
        ({"teacher": TEACHER | {"loss_max_clamp": 0}}, "trainer.teacher.loss_max_clamp: 0 is less than or equal to"),
        ({"loss_scale_factor": None}, "trainer.loss_scale_factor: None is not of type 'number'"),
    ],
)
def test_a_train_step_request_with_an_impossible_value_is_refused_and_the_error_names_the_setting(given, match):
    refused(request_settings(**given), match)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"rate": 1}, "trainer"),
        ({"optim": {"rate": 1}}, "trainer.optim"),
        ({"teacher": TEACHER | {"rate": 1}}, "trainer.teacher"),
    ],
)
def test_a_train_step_request_with_an_unknown_setting_is_refused_and_the_error_names_the_setting(given, where):
    refused(request_settings(**given), rf"{where}: .*\('rate' was unexpected\)")


@pytest.mark.parametrize(
    ("block", "key"),
    [(None, key) for key in SETTINGS] + [("optim", key) for key in OPTIM] + [("teacher", key) for key in TEACHER],
)
def test_a_train_step_request_that_lacks_a_setting_is_refused_and_the_error_names_the_setting(block, key):
    request = request_settings(teacher=dict(TEACHER))
    del (request[block] if block else request)[key]
    refused(request, f"'{key}' is a required property.*start both from the same release")


def test_clip_ratios_that_a_run_file_leaves_out_are_those_of_its_objectives_paper():
    gspo, grpo = settings_with(objective="gspo"), settings_with()
    assert (gspo.clip_ratio_low, gspo.clip_ratio_high, gspo.loss_agg_mode) == (3e-4, 4e-4, "seq-mean-token-mean")
    assert (grpo.clip_ratio_low, grpo.clip_ratio_high, grpo.loss_agg_mode) == (0.2, 0.2, "token-mean")
    assert settings_with(objective="cispo", clip_ratio_high=1).clip_ratio_high == 1
