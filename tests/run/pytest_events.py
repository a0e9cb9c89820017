"""Writes the events of pytest's tests for the runner: `events.ts` says what they are."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

FILE = os.environ.get("TRIALGATE_TEST_EVENTS")


def write(event: dict[str, Any]) -> None:
    if FILE:
        with open(FILE, "a") as file:
            file.write(json.dumps(event) + "\n")


class FileTimes:
    """Knows the file whose tests run, because pytest does not say when a file ends."""

    def __init__(self) -> None:
        self.file: str | None = None
        self.start = 0.0

    def enter(self, file: str | None) -> None:
        if file == self.file:
            return
        if self.file is not None:
            write({"event": "file", "file": self.file, "seconds": time.monotonic() - self.start})
        self.file, self.start = file, time.monotonic()
        if file is not None:
            write({"event": "open", "file": file})


times = FileTimes()
ended: dict[str, dict[str, Any]] = {}


root = ""


def pytest_configure(config: pytest.Config) -> None:
    global root
    root = str(config.rootpath)


def parts(nodeid: str) -> dict[str, str]:
    """Returns the test and its file. pytest names files from its own root, the runner from the working folder."""
    file, _, test = nodeid.partition("::")
    return {"file": os.path.relpath(os.path.join(root, file)), "test": test}


def pytest_runtest_logstart(nodeid: str) -> None:
    times.enter(parts(nodeid)["file"])
    ended[nodeid] = {"result": "passed", "seconds": 0.0}
    write({"event": "start", **parts(nodeid)})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds a phase of a test: its set-up, the test itself, its clean-up."""
    end = ended[report.nodeid]
    end["seconds"] += report.duration
    if report.failed:
        end["result"] = "failed"
        end["failure"] = f"{end.get('failure', '')}{report.longreprtext}\n"
    elif report.skipped and end["result"] == "passed":
        end["result"] = "skipped"


def pytest_runtest_logfinish(nodeid: str) -> None:
    write({"event": "end", **parts(nodeid), **ended.pop(nodeid)})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        write({"event": "file", "file": parts(report.nodeid)["file"], "seconds": 0, "failure": report.longreprtext})


def pytest_sessionfinish() -> None:
    times.enter(None)
    write({"event": "done"})
