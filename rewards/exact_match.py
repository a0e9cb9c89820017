"""1 if the last reply, without surrounding space, is the row's answer, else 0."""

from __future__ import annotations

from typing import Any


def score(
    row: dict[str, Any], transcript: list[dict[str, Any]], answer: str = "answer", ignore_case: bool = False
) -> float:
    """`answer` names the column of the answer."""
    found = str(transcript[-1].get("content") or "").strip() if transcript else ""
    wanted = str(row[answer]).strip()
    return float(found.casefold() == wanted.casefold() if ignore_case else found == wanted)
