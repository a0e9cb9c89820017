"""Calls the model once with the prompt's messages, and writes the reply to answer.txt."""

from __future__ import annotations

import json
from pathlib import Path

import chat


def prompt() -> list[chat.Message]:
    """Returns the messages of a row's prompt, or the instruction of a task folder as one."""
    messages = Path("messages.json")
    if messages.is_file():
        return json.loads(messages.read_text())
    return [{"role": "user", "content": Path("instruction.md").read_text()}]


def main() -> None:
    try:
        Path("answer.txt").write_text(chat.ask(prompt(), max_tokens=None))
    except chat.Exhausted as error:
        print(error)


main()
