"""What carries out a trial: a function of the program, or an agent of Trialgate's in a sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from .errors import RolloutError

Prompt = str | list[dict[str, Any]]
Reward = float | Mapping[str, float] | None
AgentFunction = Callable[["Trial"], "Awaitable[Reward] | Reward"]


# An agent in a sandbox may take this long to end the sandbox.
_END_SECONDS = 30.0
# The exit code of `trialgate try` for a trial whose agent or verifier failed (cli/exit.ts).
_TRIAL_FAILED = 4


class NoSuchTask(RolloutError):
    """No task matches a prompt of the data set."""


@dataclass(frozen=True)
class Trial:
    """One trial. Any client of OpenAI or Anthropic reaches the model by `base_url` and `api_key`."""

    prompt: Prompt
    """The row's `prompt`, as TRL gives it."""
    id: str
    base_url: str
    api_key: str
    model: str = "policy"

    @property
    def text(self) -> str:
        return text_of(self.prompt)


@dataclass(frozen=True)
class Done:
    """What an agent says of a trial that it has ended. `session` is the gateway's session with its calls."""

    session: str
    reward: Reward
    reason: str | None = None


class Agent(Protocol):
    """Carries out one trial."""

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Raises `NoSuchTask` for a prompt that it cannot work on."""

    async def run(self, prompt: Prompt, open_trial: Callable[[], Awaitable[Trial]]) -> Done: ...


class FunctionAgent:
    """Calls a function of the program with the trial. It returns the reward; None means that there is none."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function

    def check(self, prompts: Sequence[Prompt]) -> None:
        """A function decides by itself what it does with a prompt."""

    async def run(self, prompt: Prompt, open_trial: Callable[[], Awaitable[Trial]]) -> Done:
        trial = await open_trial()
        if asyncio.iscoroutinefunction(self._function):
            return Done(trial.id, await self._function(trial))
        # A function that is not asynchronous must not stop the trials beside it.
        result = await _in_thread(lambda: self._function(trial))
        return Done(trial.id, await result if asyncio.iscoroutine(result) else result)


class SandboxedAgent:
    """Runs `npx trialgate try` for each trial: the agent in a sandbox, then the task's verifier. See `sandboxed`."""

    def __init__(
        self, tasks: Path, agent: str, command: Sequence[str], options: Sequence[str], cwd: Path | None
    ) -> None:
        self._folder = tasks
        self._agent = agent
        self._command = command
        self._options = options
        self._cwd = cwd
        self._tasks = {file.parent.name: file.parent for file in sorted(tasks.glob("*/instruction.md"))}
        if not self._tasks:
            raise NoSuchTask(f"{tasks} has no task: a task is a folder in it with an instruction.md (docs/tasks.md)")
        self._by_instruction = {
            (folder / "instruction.md").read_text().strip(): folder for folder in self._tasks.values()
        }

    def prompts(self) -> list[dict[str, Any]]:
        """Returns rows for a data set: one for each task, with the instruction as prompt."""
        return [{"prompt": [{"role": "user", "content": text}]} for text in self._by_instruction]

    def check(self, prompts: Sequence[Prompt]) -> None:
        for prompt in prompts:
            self._task_of(prompt)

    async def run(self, prompt: Prompt, open_trial: Callable[[], Awaitable[Trial]]) -> Done:
        task = self._task_of(prompt)
        command = [*self._command, "try", str(task), "--agent", self._agent, "--json", *self._options]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=self._cwd
        )
        try:
            output, errors = await process.communicate()
        except asyncio.CancelledError:
            # It ends its sandbox and seals the trial.
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            except TimeoutError:
                process.kill()
            raise
        # A trial that failed is printed like any other. Without a record the command itself failed.
        if process.returncode not in (0, _TRIAL_FAILED) or not output.strip():
            said = errors.decode(errors="replace").strip()[-500:]
            raise RuntimeError(f"`{' '.join(command)}` ended with code {process.returncode}: {said}")
        trial = json.loads(output)
        return Done(trial["id"], trial["rewards"], trial["reason"])

    def _task_of(self, prompt: Prompt) -> Path:
        text = text_of(prompt).strip()
        task = self._tasks.get(text) or self._by_instruction.get(text)
        if task is None:
            raise NoSuchTask(
                f"no task in {self._folder} matches the prompt {text[:80]!r}: a prompt is the name of a task's folder "
                "or the text of its instruction.md. Take the rows of the data set from `agent.prompts()`, or name "
                "the folder that has these tasks"
            )
        return task


async def _in_thread(do: Callable[[], Any]) -> Any:
    """Returns what `do` returns. Its thread is its own: one that hangs holds up neither other trials nor the exit."""
    done: Future[tuple[Any, BaseException | None]] = Future()
    done.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done.set_result((do(), None))
        except BaseException as error:
            # As a future's exception a StopIteration would be lost.
            done.set_result((None, error))

    Thread(target=work, name="trialgate-agent", daemon=True).start()
    result, error = await asyncio.wrap_future(done)
    if error is not None:
        raise error
    return result


def sandboxed(
    tasks: str | Path,
    agent: str = "oneshot",
    *,
    command: Sequence[str] = ("npx", "trialgate"),
    options: Sequence[str] = (),
    cwd: str | Path | None = None,
) -> SandboxedAgent:
    """Returns an agent that runs in Trialgate's sandboxes, on the machine of the deployment.

    A prompt of the data set is the name of a task's folder in `tasks`, or the text of its `instruction.md`. `agent` is
    a bundled agent or the path of an agent file. `options` are more options of `trialgate try`, such as `--run FILE`
    with the settings of trials; `cwd` is the folder in which it runs.
    """
    return SandboxedAgent(Path(tasks).resolve(), agent, command, options, None if cwd is None else Path(cwd))


def text_of(prompt: Prompt) -> str:
    """Returns the text of a prompt: of a conversation, that of its last message of a user."""
    if isinstance(prompt, str):
        return prompt
    content = next((message["content"] for message in reversed(prompt) if message.get("role") == "user"), "")
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
