"""Tests that docs/models.md says what the trainer's check of small models finds."""

import pytest

import models_table
from models_table import REFUSED, TABLES, TRAINED, on_page
from trialgate_gpu import examine_model, families_test
from trialgate_gpu.families_real_test import IN_VLLM, NOT_PUBLISHED, NOT_RUN


def rows(table):
    return [line.split("`")[1] for line in on_page(table).splitlines() if line.startswith("| `")]


def test_the_page_has_a_row_for_each_family_that_is_tested():
    assert rows("trained") == list(TRAINED)
    assert rows("refused") == list(REFUSED)
    tested = {str(settings.get("model_type", name)) for name, settings in families_test.TRAINED.items()}
    assert {kind.split()[0] for kind in tested} <= set(TRAINED)
    assert set(TRAINED).isdisjoint(REFUSED)


def test_the_page_says_of_a_family_in_vllm_what_is_tested_there():
    in_vllm = {name.split()[0] for name in IN_VLLM}
    without_fault = in_vllm - set(NOT_PUBLISHED)
    assert {kind for kind, family in TRAINED.items() if family.engine.startswith(models_table.SAME)} == without_fault
    assert {kind for kind, family in TRAINED.items() if family.engine} - {"llama"} == in_vllm | set(NOT_RUN)


@pytest.mark.processes
@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_the_table_that_the_check_of_small_models_makes(table):
    # A column says what the installed vLLM has.
    pytest.importorskip("vllm.version")
    assert on_page(table) == TABLES[table]()


def test_a_family_that_does_not_pass_has_no_row(monkeypatch):
    monkeypatch.setattr(examine_model, "TOLERANCE", 0.0)
    monkeypatch.setattr(models_table, "TRAINED", {"llama": TRAINED["llama"]})
    with pytest.raises(ValueError, match=r"llama: .* cannot be trained: .* differ"):
        models_table.trained_table()
    monkeypatch.undo()
    monkeypatch.setattr(models_table, "REFUSED", {"llama": TRAINED["llama"]})
    with pytest.raises(ValueError, match="llama can be trained now"):
        models_table.refused_table()
