"""1 if the last reply is JSON that matches a schema, else 0. A Markdown block around it does not matter."""

from __future__ import annotations

import json
import re
from typing import Any

from jsonschema import Draft202012Validator

FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


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
        return float(validator.is_valid(json.loads(fenced.group(1) if fenced else text)))
    except ValueError:
        return 0.0
