"""1 if the last reply's answer equals the row's as mathematics, else 0, by Hugging Face's math-verify. For MATH."""

from __future__ import annotations

from typing import Any

from math_verify import parse, verify


def score(row: dict[str, Any], transcript: list[dict[str, Any]], answer: str = "answer") -> float:
    """`answer` names the column of the answer, in LaTeX or as plain text."""
    gold = parse(boxed(str(row[answer])))
    if not gold:
        raise ValueError(f"the column {answer} has no answer that can be read: {row[answer]!r}")
    return float(verify(gold, parse(str(transcript[-1].get("content") or ""))))


def boxed(text: str) -> str:
    """math-verify looks for LaTeX in an environment such as `\\boxed{…}`."""
    return text if "\\boxed" in text or "$" in text else f"\\boxed{{{text}}}"
