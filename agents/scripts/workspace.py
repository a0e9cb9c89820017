"""The tools of the bundled tool-calling agents: files and commands of the work folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

MAX_CHARACTERS = 8_000
SECONDS = 60


def read_file(path: str) -> str:
    """Reads a text file of the work folder."""
    try:
        return short(Path(path).read_text(errors="replace"))
    except OSError as error:
        return f"error: {error}"


def write_file(path: str, content: str) -> str:
    """Writes a text file into the work folder."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(content)
    except OSError as error:
        return f"error: {error}"
    return "written"


def run_command(command: str) -> str:
    """Runs a shell command in the work folder and returns its output."""
    try:
        ended = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"error: the command did not end within {SECONDS} s"
    return short(f"{ended.stdout}{ended.stderr}\nexit code {ended.returncode}")


def short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}\n… {len(text)} characters in all"
