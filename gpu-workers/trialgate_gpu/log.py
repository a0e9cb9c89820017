"""The GPU worker's log: text for people, or a JSON object a line for programs (`core/log-record.ts`)."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

# What engines and servers send is part of some messages, and no line may be longer than readers of logs take.
LONGEST = 8_000
# Characters that would begin a new line of the log or change how it is displayed.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}

_run: ContextVar[str | None] = ContextVar("run", default=None)


def run_under_way() -> str | None:
    """Returns the run that lines of this task or thread name."""
    return _run.get()


@contextmanager
def about_run(run_id: str | None) -> Iterator[None]:
    """Lets the lines that are written in the block, also by its tasks and threads, name the run."""
    token = _run.set(run_id)
    try:
        yield
    finally:
        _run.reset(token)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        fields = {
            "time": time_of(record),
            "level": LEVELS.get(record.levelno, "error"),
            "process": "gpu-worker",
            "pid": os.getpid(),
            "message": one_line(record.getMessage()),
        }
        if run := _run.get():
            fields["run_id"] = run[:256]
        if kind := getattr(record, "error", None) or (error and type(error).__name__):
            fields["error"] = str(kind)[:128]
        if error is not None:
            fields["stack"] = stack_of(error)
        return json.dumps(fields)


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return time_of(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        run = _run.get()
        message = record.message if run is None or run in record.message else f"{record.message} [run {run[:256]}]"
        record.message = one_line(message)
        return super().formatMessage(record)

    def formatException(self, ei: tuple) -> str:
        return stack_of(ei[1])


def time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def stack_of(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    if len(text) > LONGEST:
        # A long message at the end must not take the place of the frames.
        text = f"{text[: LONGEST // 2]}\n[…]\n{text[-LONGEST // 2 :]}"
    return "\n".join(CONTROL.sub(" ", line) for line in text.split("\n"))


def one_line(text: str) -> str:
    shown = CONTROL.sub(" ", text[:LONGEST])
    return shown if len(text) <= LONGEST else f"{shown} [… {len(text) - LONGEST} characters left out]"


def write_log(form: str) -> None:
    """Writes what this process logs to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
