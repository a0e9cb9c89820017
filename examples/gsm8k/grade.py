"""Gives 1 if the reply has a line `#### NUMBER`, as the prompt asks, else 0."""

import re


def has_answer_line(transcript):
    return float(re.search(r"^#### -?[\d.,]+\s*$", transcript[-1]["content"] or "", re.MULTILINE) is not None)
