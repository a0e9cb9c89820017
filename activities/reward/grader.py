"""Runs one reward function for many trials, in processes that stay.

The module is imported once. Then process processes are forked, so that a call that hangs or ends its process costs only
itself. The parent talks with the host over a Unix socket, one JSON object a line:

    host → {"id", "row", "prompt", "transcript", "completion_ids", "training", "result", "files"}        files: a folder
    host ← {"ready": true, "async": …} | {"fault": "…"}           once
    host ← {"id", "value"} | {"id", "error", "outside"}, with "stdout" and "stderr"

It needs Python 3.9 and nothing but its library.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import importlib.util
import inspect
import io
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

MAX_OUTPUT = 32_768
"""The most characters of each stream that a call may return to the host."""
ASYNC_CALLS = 64
"""The calls that one process answers at the same time, if the function is `async`."""


class Files(Mapping[str, str]):
    """The files that the agent left, by their paths: `files["src/main.py"]` is the text of one, which must be UTF-8."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder)

    def __getitem__(self, name: str) -> str:
        file = self.path / name
        if not file.is_file() or file.is_symlink():
            raise KeyError(name)
        return file.read_text("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (str(file.relative_to(self.path)) for file in sorted(self.path.rglob("*")) if file.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


Message = dict[str, Any]
Request = dict[str, Any]
Reply = dict[str, Any]
Reward = Callable[[Request], Any]


def load(file: str, name: str) -> Callable[..., Any]:
    """Imports a file and returns its function."""
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        known = ", ".join(key for key, value in vars(module).items() if inspect.isfunction(value)) or "none"
        raise AttributeError(f"{file} has no function {name}; there are {known}")
    return function


OWN_ARGUMENTS = ("row", "transcript", "result", "files")
TRL_ARGUMENTS = ("prompts", "completions", "completion_ids", "completions_ids", "trainer_state")
"""TRL's documents also say `completions_ids`; its code passes `completion_ids`."""
NOT_PASSED_BY_TRL = ("prompt", "completion", "completion_ids")
"""Columns that TRL passes under another name, as its `GRPOTrainer._calculate_rewards` does (TRL 1.16)."""


def adapt(function: Callable[..., Any], options: dict[str, Any]) -> Reward:
    """Returns a function of a request. One of TRL's `reward_funcs` gets lists of one."""
    parameters = inspect.signature(function).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())

    def keywords(given: dict[str, Any]) -> dict[str, Any]:
        return given if takes_any else {key: value for key, value in given.items() if key in parameters}

    if is_trl(parameters):

        def batched(request: Request) -> Any:
            given = trl_arguments(request)
            if "completions_ids" in parameters:
                given["completions_ids"] = given["completion_ids"]
            return function(**keywords({**given, **options}))

        return batched

    def single(request: Request) -> Any:
        given = {key: request[key] for key in ("row", "transcript", "result")}
        return function(**keywords({**given, "files": Files(request["files"])}), **options)

    return single


def is_trl(parameters: Mapping[str, Any]) -> bool:
    """Returns True for the parameters of one of TRL's `reward_funcs`."""
    is_own = any(name in parameters for name in OWN_ARGUMENTS)
    return "completions" in parameters or (not is_own and any(name in parameters for name in TRL_ARGUMENTS))


def is_async(function: Callable[..., Any]) -> bool:
    """Returns True for an `async` function, and for an object that is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def trl_arguments(request: Request) -> dict[str, Any]:
    """Returns the arguments that TRL passes to a reward function, for a batch of one.

    Prompts and completions are texts where the row's prompt is a text (TRL's standard format), and messages where it is
    messages (its conversational format).
    """
    prompt, step, steps = request["prompt"], request["training"]["global_step"], request["training"]["max_steps"]
    is_text = isinstance(prompt, str)
    completion = completion_of(request["transcript"], [] if is_text else prompt)
    return {
        **{key: [value] for key, value in request["row"].items() if key not in NOT_PASSED_BY_TRL},
        "prompts": [prompt],
        "completions": [text_of(completion[-1]) if is_text else completion],
        "completion_ids": [request["completion_ids"]],
        "trainer_state": SimpleNamespace(
            global_step=step, max_steps=steps, epoch=step / max(steps, 1), num_train_epochs=1, log_history=[]
        ),
        "log_extra": lambda column, values: print(f"{column}: {values[0]!r}"),
        "log_metric": lambda name, value: print(f"{name}: {value}"),
    }


def completion_of(transcript: list[Message], prompt: list[Message]) -> list[Message]:
    """Returns the messages from the model's first one on.

    The prompt may have replies too (few-shot examples), and the agent may have added to it (a system prompt).
    """
    replies_of_prompt = [message.get("content") for message in prompt if message.get("role") == "assistant"]
    for i, message in enumerate(transcript):
        if message.get("role") != "assistant":
            continue
        if not replies_of_prompt or message.get("content") != replies_of_prompt.pop(0):
            return [with_thinking(each) for each in transcript[i:]]
    return [{"role": "assistant", "content": ""}]


def with_thinking(message: Message) -> Message:
    """Adds the field in which TRL has a model's thinking; vLLM calls it `reasoning`."""
    thinking = message.get("reasoning")
    return {**message, "reasoning_content": thinking} if thinking and "reasoning_content" not in message else message


def text_of(message: Message) -> str:
    """Returns the text of a reply. In TRL's standard format, thinking is a part of it."""
    thinking, content = message.get("reasoning_content"), message.get("content") or ""
    return f"<think>{thinking}</think>{content}" if thinking else content


def value_of(returned: Any, *, may_be_none: bool) -> float | dict[str, float] | None:
    """Checks what the function returned. A list of one is TRL's batch of one, in which None is no reward."""
    if isinstance(returned, (list, tuple)) and len(returned) == 1:
        returned = returned[0]
        if returned is None and may_be_none:
            return None
    if isinstance(returned, dict) and returned:
        return {str(name): number_of(value, f"{name}: ") for name, value in returned.items()}
    return number_of(returned, "")


def number_of(value: Any, name: str) -> float:
    if not isinstance(value, (str, bytes)):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if number == number and abs(number) < 3e38:  # the trainer computes in float32
                return number
    raise ValueError(
        f"the function returned {name}{short(repr(value))}, not a finite number or a dict of names to numbers"
    )


def short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def fault_of(error: BaseException, file: str) -> str:
    """Names the error, and the last line of the user's file that it passed."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" ({Path(file).name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {short(str(error))}{where}" if str(error) else f"{type(error).__name__}{where}"


OUTSIDE = re.compile(
    r"^(API)?(Connect|Connection|Network|Timeout|ReadTimeout|ConnectTimeout|Gateway|InternalServer)\w*$"
)


def is_outside(error: BaseException) -> bool:
    """Returns True for an error of the network: Python's own, or one of requests, httpx or openai, by its name."""
    if isinstance(error, (BrokenPipeError, subprocess.SubprocessError)):
        return False  # of a program that the function started
    own = (ConnectionError, TimeoutError, socket.gaierror)
    return isinstance(error, own) or any(OUTSIDE.match(kind.__name__) for kind in type(error).__mro__)


# Keeps the output of each call apart, because several calls may run at the same time.
printed: contextvars.ContextVar[tuple[io.StringIO, io.StringIO] | None] = contextvars.ContextVar(
    "printed", default=None
)


class Printed(io.TextIOBase):
    """Takes the place of sys.stdout or sys.stderr, and writes to the stream of the call under way."""

    def __init__(self, index: int) -> None:
        self.index = index

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        streams = printed.get()
        return len(text) if streams is None else streams[self.index].write(text)


class Output(io.StringIO):
    """What one call prints. It stops keeping more long after what may be returned."""

    def write(self, text: str) -> int:
        if self.tell() < 4 * MAX_OUTPUT:
            super().write(text)
        return len(text)

    def add_traceback(self) -> None:
        super().write(traceback.format_exc())


class Late(Exception):
    """The function waited for something until its time was up. One that computes is ended with its process."""


def failure(error: Exception, settings: dict[str, Any]) -> Reply:
    if isinstance(error, Late):
        return {"error": late(settings), "outside": settings["network"]}
    return {"error": fault_of(error, settings["file"]), "outside": settings["network"] and is_outside(error)}


def late(settings: dict[str, Any]) -> str:
    return f"the function did not end within {settings['seconds']:g} s"


def with_output(reply: Reply, streams: tuple[Output, Output]) -> Reply:
    stdout, stderr = (stream.getvalue()[-MAX_OUTPUT:] for stream in streams)
    return {**reply, "stdout": stdout, "stderr": stderr}


async def awaited(returned: Any, seconds: float) -> Any:
    """Waits for what an `async` function returns."""
    task = asyncio.ensure_future(returned)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        raise Late
    return task.result()


def work_in_turn(link: socket.socket, reward: Reward, settings: dict[str, Any]) -> None:
    """Answers one request after another until the parent closes the link.

    The function runs as in a script: on the main thread, without a running event loop. So `asyncio.run` and
    `signal.alarm` work in it.
    """
    with link.makefile("rb") as lines:
        for line in lines:
            request = json.loads(line)
            streams = (Output(), Output())
            with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
                reply = answer(request, reward, settings, streams[1])
            link.sendall(json.dumps(with_output(reply, streams)).encode() + b"\n")


def answer(request: Request, reward: Reward, settings: dict[str, Any], stderr: Output) -> Reply:
    reply: Reply = {"id": request["id"]}
    try:
        returned = reward(request)
        if inspect.isawaitable(returned):
            returned = asyncio.run(awaited(returned, settings["seconds"]))
        reply["value"] = value_of(returned, may_be_none=settings["trl"])
    except Exception as error:
        stderr.add_traceback()
        reply |= failure(error, settings)
    finally:
        # An alarm that the function left would end the process in a later call.
        signal.setitimer(signal.ITIMER_REAL, 0)
    return reply


async def answer_async(request: Request, reward: Reward, settings: dict[str, Any]) -> Reply:
    streams = (Output(), Output())
    token = printed.set(streams)
    reply: Reply = {"id": request["id"]}
    try:
        returned = await awaited(reward(request), settings["seconds"])
        reply["value"] = value_of(returned, may_be_none=settings["trl"])
    except Exception as error:
        streams[1].add_traceback()
        reply |= failure(error, settings)
    finally:
        printed.reset(token)
    return with_output(reply, streams)


async def work_at_once(link: socket.socket, reward: Reward, settings: dict[str, Any]) -> None:
    """Answers requests for an `async` function, many at the same time, until the parent closes the link."""
    sys.stdout, sys.stderr = Printed(0), Printed(1)  # type: ignore[assignment]
    # `asyncio.to_thread` has few threads by default, and calls that wait for one would use up their time.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(ASYNC_CALLS))
    reader, writer = await asyncio.open_connection(sock=link, limit=2**30)
    running: set[asyncio.Task[None]] = set()

    async def one(request: Request) -> None:
        writer.write(json.dumps(await answer_async(request, reward, settings)).encode() + b"\n")
        await writer.drain()

    while line := await reader.readline():
        task = asyncio.create_task(one(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


class GraderProcess:
    """A forked process that runs the function."""

    def __init__(
        self, reward: Reward, settings: dict[str, Any], inherited: list[socket.socket], *, at_once: bool
    ) -> None:
        self.link, theirs = socket.socketpair()
        self.running: dict[int, tuple[Request, float]] = {}
        self.unread = self.unsent = b""
        self.pid = os.fork()
        if self.pid == 0:
            for each in [*inherited, self.link]:
                each.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            protect_memory()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            try:
                if at_once:
                    asyncio.run(work_at_once(theirs, reward, settings))
                else:
                    work_in_turn(theirs, reward, settings)
            finally:
                os._exit(0)
        theirs.close()
        self.link.setblocking(False)

    def send(self, request: Request, deadline: float) -> None:
        self.running[request["id"]] = (request, deadline)
        self.unsent += json.dumps(request).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Sends what the process can take now. One that blocks its event loop must not block the others."""
        # An end of the process is seen when its replies are read.
        with contextlib.suppress(OSError):
            while self.unsent:
                self.unsent = self.unsent[self.link.send(self.unsent) :]

    def replies(self) -> list[Reply] | None:
        """Returns the replies that have arrived, or None at the process's end."""
        try:
            received = self.link.recv(2**20)
        except BlockingIOError:
            return []
        except OSError:
            received = b""
        if not received:
            return None
        *lines, self.unread = (self.unread + received).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self) -> str:
        """Ends the process, and returns how it ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.link.close()
        code = os.waitstatus_to_exitcode(status)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class Grader:
    """Gives requests to processes, and replaces a process that ends or takes too long."""

    def __init__(self, host: socket.socket, reward: Reward, settings: dict[str, Any], calls: int) -> None:
        self.host, self.reward, self.settings = host, reward, settings
        self.calls = calls
        self.selector = selectors.DefaultSelector()
        self.selector.register(host, selectors.EVENT_READ)
        self.waiting: deque[Request] = deque()
        self.processes: list[GraderProcess] = []
        self.must_run_alone: set[int] = set()
        self.unread = b""

    def run(self) -> None:
        while self.turn():
            pass
        for process in self.processes:
            process.end()

    def turn(self) -> bool:
        """Handles what has arrived. Returns False when the host has closed its link."""
        self.give_out()
        deadlines = [deadline for process in self.processes for _, deadline in process.running.values()]
        timeout = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        for process in self.processes:
            writes = selectors.EVENT_WRITE if process.unsent else 0
            self.selector.modify(process.link, selectors.EVENT_READ | writes, process)
        for key, events in self.selector.select(timeout):
            process = key.data
            if process is None:
                if not self.receive():
                    return False
            elif process in self.processes:
                if events & selectors.EVENT_WRITE:
                    process.flush()
                if events & selectors.EVENT_READ:
                    self.collect(process)
        self.end_late()
        return True

    def receive(self) -> bool:
        received = self.host.recv(2**20)
        *lines, self.unread = (self.unread + received).split(b"\n")
        self.waiting.extend(json.loads(line) for line in lines)
        return bool(received)

    def give_out(self) -> None:
        while self.waiting:
            request = self.waiting[0]
            process = self.idle(alone=request["id"] in self.must_run_alone)
            if process is None:
                return
            self.waiting.popleft()
            # An async function ends itself at its deadline; its process gets a little longer.
            grace = 2.0 if self.calls > 1 else 0.0
            process.send(request, time.monotonic() + self.settings["seconds"] + grace)

    def idle(self, alone: bool) -> GraderProcess | None:
        """Returns a process for one more call.

        A call that was running when its process ended runs alone the second time.
        """
        limit = 1 if alone else self.calls
        free = [
            each
            for each in self.processes
            if len(each.running) < limit and not (self.must_run_alone & each.running.keys())
        ]
        least = min(free, key=lambda each: len(each.running), default=None)
        if (least is not None and not least.running) or len(self.processes) >= self.settings["processes"]:
            return least
        inherited = [self.host, *(each.link for each in self.processes)]
        process = GraderProcess(self.reward, self.settings, inherited, at_once=self.calls > 1)
        self.processes.append(process)
        self.selector.register(process.link, selectors.EVENT_READ, process)
        return process

    def collect(self, process: GraderProcess) -> None:
        replies = process.replies()
        if replies is None:
            self.replace(process, None)
            return
        for reply in replies:
            process.running.pop(reply["id"], None)
            self.reply(reply)

    def end_late(self) -> None:
        now = time.monotonic()
        for process in list(self.processes):
            if any(deadline <= now for _, deadline in process.running.values()):
                self.replace(process, late(self.settings))

    def replace(self, process: GraderProcess, why: str | None) -> None:
        """Ends a process. If one call ran, it failed; if several ran, each runs again alone."""
        self.processes.remove(process)
        self.selector.unregister(process.link)
        ended = process.end()
        requests = [request for request, _ in process.running.values()]
        for request in requests:
            if len(requests) == 1:
                error = why or f"the function ended its process with {ended}"
                self.reply({"id": request["id"], "error": error, "stdout": "", "stderr": ""})
            else:
                self.must_run_alone.add(request["id"])
                self.waiting.appendleft(request)

    def reply(self, reply: Reply) -> None:
        self.must_run_alone.discard(reply["id"])
        self.host.sendall(json.dumps(reply).encode() + b"\n")


def protect_memory() -> None:
    """Closes this process's memory to programs of the same user, such as those that a reward function runs."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def main() -> None:
    settings = json.loads(sys.argv[1])
    host = socket.socket(socket.AF_UNIX)
    host.connect(settings["socket"])
    out: TextIO = sys.stdout
    sys.stdout = sys.stderr  # what the module prints while it is imported
    try:
        function = load(settings["file"], settings["name"])
        reward = adapt(function, settings["options"])
        settings["trl"] = is_trl(inspect.signature(function).parameters)
    except BaseException as error:
        traceback.print_exc()
        host.sendall(json.dumps({"fault": fault_of(error, settings["file"])}).encode() + b"\n")
        sys.exit(1)
    sys.stdout = out
    protect_memory()
    at_once = is_async(function)
    host.sendall(json.dumps({"ready": True, "async": at_once}).encode() + b"\n")
    Grader(host, reward, settings, ASYNC_CALLS if at_once else 1).run()


if __name__ == "__main__":
    main()
