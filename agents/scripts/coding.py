"""Makes a prompt from a task, and solution.py from a reply."""

from __future__ import annotations

FENCE = "```"


def first_prompt() -> str:
    with open("instruction.md", encoding="utf-8") as file:
        return file.read().strip()


def first_block(reply: str) -> str | None:
    """Returns the first closed code block without its language; None when there is none."""
    parts = reply.split(FENCE, 2)
    if len(parts) < 3:
        return None
    language, newline, code = parts[1].partition("\n")
    return code if newline and language.strip().lower() in ("", "python", "py", "python3") else None


def write_solution(code: str) -> None:
    with open("solution.py", "w", encoding="utf-8", errors="replace") as file:
        file.write(code)
