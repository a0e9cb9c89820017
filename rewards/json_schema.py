"""1 if the last reply is JSON that matches a schema, else 0. A Markdown block around it does not matter.

NaN, Infinity and numbers that no float can hold are not JSON: NaN would pass every bound of a schema.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from jsonschema import Draft202012Validator

FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL)


def score(
    row: dict[str, Any],
    transcript: list[dict[str, Any]],
    schema: dict[str, Any] | None = None,
    column: str = "schema",
) -> float:
    """`schema` is the schema of all rows; without it each row has its own in `column`."""
    wanted = schema if schema is not None else row[column]
    validator = Draft202012Validator(json.loads(wanted) if isinstance(wanted, str) else wanted)
    text = str(transcript[-1].get("content") or "") if transcript else ""
    fenced = FENCED.search(text)
    try:
        value = json.loads(fenced.group(1) if fenced else text, parse_float=finite, parse_constant=finite)
        return float(validator.is_valid(value))
    except (ValueError, OverflowError, RecursionError):
        return 0.0


def finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON")
    return number
