"""The share of a row's tests that the last reply's Python program passes.

The tests are pairs of input and output: the program reads one from standard input and its standard output must be the
other. The program is not given the expected outputs. Tests that must run in the program's
own process, such as assertions, belong into a task folder with a verifier of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FENCED = re.compile(r"```(?:python|py)?\s*\n(.*?)```", re.DOTALL)


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
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(blocks[-1])
        passed = [run(program, str(pair["input"]), seconds) == normal(str(pair["output"])) for pair in pairs]
    return sum(passed) / len(passed)


def run(program: Path, given: str, seconds: float) -> str | None:
    """Returns what the program prints, or None if it fails or takes too long."""
    try:
        ended = subprocess.run(
            [sys.executable, "-I", str(program)],
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            cwd=program.parent,
            env={},
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    return normal(ended.stdout)


def normal(text: str) -> str:
    """Space at the end of lines does not count."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
