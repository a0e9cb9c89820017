import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from temporalio.testing import ActivityEnvironment

from .errors import GpuWorkerError
from .log import LONGEST, JsonFormatter, TextFormatter, about_run
from .worker import Activities
from .worker_test import Backends, SomeTrainer

SCHEMA = json.loads((Path(__file__).parents[2] / "core/log-record.schema.json").read_text())
log = logging.getLogger("trialgate.gpu")


@pytest.fixture
def written():
    """Collects the lines that the GPU worker's log would have in JSON."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(JsonFormatter())
    handler.emit = lambda record: lines.append(handler.format(record))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(handler)
    log.setLevel(level)


def records(lines):
    found = [json.loads(line) for line in lines]
    for record in found:
        jsonschema.validate(record, SCHEMA, format_checker=jsonschema.FormatChecker())
    return found


def test_the_lines_of_an_activity_are_records_of_the_schema_that_name_its_run_also_those_of_its_progress(written):
    activities = Activities(Backends(SomeTrainer()))
    log.info("ready")
    asyncio.run(ActivityEnvironment().run(activities.train_step, {"run_id": "run", "version": 3, "trainer": {}}))
    before, progress, done = records(written)
    assert "run_id" not in before
    assert [line["run_id"] for line in (progress, done)] == ["run", "run"]
    assert progress["message"].endswith("of run@3: train, pack 2 of 7, 41,022 tokens")
    assert {line["process"] for line in (before, progress, done)} == {"gpu-worker"}


class BrokenTrainer(SomeTrainer):
    def __init__(self, error):
        super().__init__()
        self.error = error

    async def call(self, name, request, progress):
        raise self.error


def test_a_failure_s_line_has_its_code_or_its_class_with_the_stack(written):
    for error in [GpuWorkerError("BadSettings", "no such setting"), ZeroDivisionError("by zero")]:
        activities = Activities(Backends(BrokenTrainer(error)))
        with pytest.raises(Exception, match=r"no such setting|by zero"):
            asyncio.run(ActivityEnvironment().run(activities.train_step, {"run_id": "run", "version": 3}))
    refused, failed = records(written)
    assert (refused["level"], refused["error"]) == ("error", "BadSettings")
    assert (failed["level"], failed["error"]) == ("error", "ZeroDivisionError")
    assert "raise self.error" in failed["stack"]


@pytest.mark.parametrize(
    "text", ["a\nb\r\x1b[2J\x00\x9b\u2028\u2029", '{"level":"error"}\n{"x":1}', "\ud800", "x\n" * 5_000_000]
)
def test_whatever_text_others_send_a_line_stays_one_line_of_bounded_length(written, text):
    with about_run(text):
        log.warning("%s", text)
    (line,) = written
    assert "\n" not in line and len(line) < 8 * LONGEST
    (record,) = records(written)
    shown = TextFormatter().format(logging.makeLogRecord({"msg": text}))
    for words in (record["message"], shown):
        assert not any(character in words for character in "\n\r\x1b\x00\x9b\u2028\u2029")


def failed_with(text):
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed")
        return TextFormatter().format(logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()}))


def test_a_stack_has_no_control_characters_and_has_its_frames_whatever_the_length_of_the_message(written):
    for text in ("reply:\n  \x1b[2J\x1b]0;owned\x07\x9b", "x" * 50_000):
        in_text = failed_with(text)
        stack = records(written)[-1]["stack"]
        for shown in (stack, in_text):
            assert "in failed_with" in shown and "ValueError" in shown
            assert not any(character in shown for character in "\r\x1b\x07\x00\x9b\u2028\u2029")
        assert len(stack) < 2 * LONGEST


def test_a_line_in_text_has_the_time_in_utc_the_level_and_the_run():
    record = logging.makeLogRecord({"msg": "x", "levelname": "WARNING", "created": 1796000000.5})
    with about_run("run"):
        assert TextFormatter().format(record) == "2026-11-30T00:53:20.500Z WARNING x [run run]"


def test_what_a_library_calls_error_of_a_line_may_be_anything(written):
    log.warning("x", extra={"error": ValueError("y")})
    assert records(written)[0]["error"] == "y"


def test_the_worker_writes_json_when_its_variable_asks_for_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "trialgate_gpu", "--metrics-address", "192.0.2.1:1", "--home", str(tmp_path)],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "TRIALGATE_LOG_FORMAT": "json",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (record,) = records(done.stderr.splitlines())
    assert "--metrics-address: nothing can listen on 192.0.2.1:1" in record["message"]
