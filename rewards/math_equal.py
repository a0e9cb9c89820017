"""1 if the last reply's answer equals the row's as mathematics, else 0, by Hugging Face's math-verify. For MATH.

What was not computed does not count: `6 \\cdot 7` where the answer is 42, and an expression that stands in the prompt
and is not written as the answer is. Other forms of an expression count: who asks to factor or to expand something
cannot tell with this reward whether it was done.
"""

from __future__ import annotations

import re
from typing import Any

from math_verify import parse, verify
from sympy import Basic, Eq, Integer, Mul, Number, Pow, Rational

NUMERAL = re.compile(r"[-+]?[\d.,]+")
SPACE = re.compile(r"\s|\\[,;!]|\\left|\\right")


def score(row: dict[str, Any], transcript: list[dict[str, Any]], answer: str = "answer") -> float:
    """`answer` names the column of the answer, in LaTeX or as plain text."""
    gold = parse(boxed(str(row[answer])))
    if not gold:
        raise ValueError(f"the column {answer} has no answer that can be read: {row[answer]!r}")
    found = parse(str(transcript[-1].get("content") or ""))
    prompt = "\n".join(str(message.get("content")) for message in transcript if message.get("role") == "user")
    return float(verify(gold, found) and not is_left_to_do(gold, found, prompt))


def boxed(text: str) -> str:
    """math-verify looks for LaTeX in an environment such as `\\boxed{…}`."""
    return text if "\\boxed" in text or "$" in text else f"\\boxed{{{text}}}"


def is_left_to_do(gold: list[Any], found: list[Any], prompt: str) -> bool:
    """Returns True for an answer that repeats the task. `parse` returns the expression and its text."""
    text = SPACE.sub("", str(found[-1]))
    is_from_prompt = text in SPACE.sub("", prompt) and text != SPACE.sub("", str(gold[-1]))
    if is_from_prompt and not NUMERAL.fullmatch(text):
        return True
    return isinstance(value_of(gold[0]), Number) and not is_written_out(value_of(found[0]))


def value_of(parsed: Any) -> Any:
    """Returns 42 of `x = 42`."""
    return parsed.rhs if isinstance(parsed, Eq) else parsed


def is_written_out(value: Any) -> bool:
    """Returns True for a number, also with a percent sign or a power of ten."""
    if not isinstance(value, Basic) or isinstance(value, Number):
        return True
    units = [each for each in value.args if each == Rational(1, 100) or is_power_of_ten(each)]
    rest = [each for each in value.args if each not in units]
    return isinstance(value, Mul) and len(units) == 1 and len(rest) == 1 and isinstance(rest[0], Number)


def is_power_of_ten(value: Any) -> bool:
    return isinstance(value, Pow) and value.base == 10 and isinstance(value.exp, Integer)
