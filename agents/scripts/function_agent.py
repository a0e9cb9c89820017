"""Calls a Python function as an agent: `function_agent.py FILE FUNCTION`, in the folder of the task.

The function gets the task, and the model if it has a second parameter. It may be `async`. What it returns, if not None,
is written to `result.json` for the reward function. An error ends the process with its traceback.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """What the agent is to do. The working folder is the current one."""

    instruction: str
    messages: list[dict[str, str]]
    """The prompt as messages; of a task folder, the instruction as a user's message."""
    row: dict[str, Any] = field(default_factory=dict)
    """The columns of the row that the run file shows to the agent (`columns`)."""
    folder: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class Model:
    """Where the model is: `openai.OpenAI(base_url=model.base_url, api_key=model.api_key)`."""

    base_url: str
    api_key: str
    model: str


def load(file: str, name: str) -> Callable[..., Any]:
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        sys.exit(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        sys.exit(f"{Path(file).name} has no function {name}")
    return function


def read_json(name: str) -> Any:
    file = Path(name)
    return json.loads(file.read_text()) if file.is_file() else None


def prepare(file: str, name: str) -> Callable[[], None]:
    """Imports the file, and returns what calls its function in the folder of a task."""
    function = load(file, name)
    return lambda: call(function)


def call(function: Callable[..., Any]) -> None:
    instruction = Path("instruction.md").read_text()
    messages = read_json("messages.json") or [{"role": "user", "content": instruction}]
    task = Task(instruction, messages, read_json("row.json") or {})
    model = Model(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], "policy")
    takes = len(inspect.signature(function).parameters)
    result = function(task) if takes == 1 else function(task, model)
    if inspect.isawaitable(result):
        result = asyncio.run(as_coroutine(result))
    if result is not None:
        Path("result.json").write_text(json.dumps(result))


async def as_coroutine(awaitable: Any) -> Any:
    return await awaitable


if __name__ == "__main__":
    prepare(*sys.argv[1:])()
