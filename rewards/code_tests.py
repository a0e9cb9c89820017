"""The share of a row's tests that the last reply's Python program passes.

The tests are pairs of input and output: the program reads one from standard input and its standard output must be the
other. The program is not given the expected outputs. Tests that must run in the program's
own process, such as assertions, belong into a task folder with a verifier of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAX_OUTPUT = 2**20
FENCED = re.compile(r"```(?:python|py)?[^\S\n]*\n(.*?)```", re.DOTALL)


def score(
    row: dict[str, Any],
    transcript: list[dict[str, Any]],
    tests: str = "tests",
    seconds: float = 5.0,
) -> float:
    """`tests` names the column of the tests: a list of `{"input": …, "output": …}`. `seconds` is the limit of each."""
    pairs = json.loads(row[tests]) if isinstance(row[tests], str) else row[tests]
    if not pairs:
        raise ValueError(f"the column {tests} has no tests")
    blocks = FENCED.findall(str(transcript[-1].get("content") or "")) if transcript else []
    if not blocks:
        return 0.0
    adopt_orphans()
    passed = [run(blocks[-1], str(pair["input"]), seconds) == normal(str(pair["output"])) for pair in pairs]
    return sum(passed) / len(passed)


def run(program: str, given: str, seconds: float) -> str | None:
    """Returns what the program prints, or None if it fails, takes too long or prints too much."""
    # The program is an argument, not a file: other programs run as the same user.
    command = [sys.executable, "-I", "-c", program]
    with tempfile.TemporaryFile() as printed:
        try:
            subprocess.run(
                command,
                input=given.encode(),
                stdout=printed,
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                env={},
                check=True,
                preexec_fn=limit,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        finally:
            end_orphans()
        printed.seek(0)
        return normal(printed.read(MAX_OUTPUT).decode("utf-8", "replace"))


def limit() -> None:
    """Bounds what a program may write."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_OUTPUT, MAX_OUTPUT))


def adopt_orphans() -> None:
    """Makes this process the parent of what a program leaves running, so that `end_orphans` finds it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_orphans() -> None:
    """Ends every process that a program left, and those that they start meanwhile."""
    while children := [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == os.getpid()]:
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def parent_of(pid: str) -> int | None:
    try:
        return int(Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return None


def normal(text: str) -> str:
    """Space at the end of lines does not count."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
