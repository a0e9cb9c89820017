"""1 if the last number of the last reply is the last number of the row's answer, else 0.

For GSM8K, whose answers end with `#### 72`. If the text has a number in `\\boxed{…}`, or after `####` or "answer is",
the last such number counts, else the last number. Commas between digits, currency signs and a trailing period do not
matter.
"""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException
from typing import Any

NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
MARKED = re.compile(rf"(?:####|\\boxed\{{|answer is:?)\s*(?:\$\s*)?({NUMBER})", re.IGNORECASE)
ANY = re.compile(NUMBER)


def last_number(text: str) -> Decimal | None:
    found = MARKED.findall(text) or ANY.findall(text)
    try:
        return Decimal(found[-1].replace(",", "").rstrip(".")) if found else None
    except DecimalException:
        return None


def score(
    row: dict[str, Any], transcript: list[dict[str, Any]], answer: str = "answer", tolerance: float = 0.0
) -> float:
    """`answer` names the column of the answer. `tolerance` is the largest difference that counts as equal."""
    wanted = last_number(str(row[answer]))
    if wanted is None:
        raise ValueError(f"the column {answer} has no number: {row[answer]!r}")
    found = last_number(str(transcript[-1].get("content") or "")) if transcript else None
    try:
        return float(found is not None and abs(found - wanted) <= Decimal(str(tolerance)))
    except DecimalException:  # The reply's number is too large to compute with.
        return 0.0
