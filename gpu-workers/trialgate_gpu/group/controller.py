"""Starts a group of ranks, sends it commands, and ends it. The controller itself uses no device.

A rank that dies or is silent ends the whole group: no other rank can go on without it. A cancelled command ends it too,
because ranks in the middle of an exchange cannot be stopped one by one. The next command starts a new group.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import secrets
import shlex
import signal
import socket
import sys
import time
from collections import deque
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import GpuWorkerError
from ..log import about_run, run_under_way
from ..processes import descendants, is_alive
from ..progress import Progress

log = logging.getLogger("trialgate.gpu")

Json = dict[str, Any]
TOKEN = "TRIALGATE_GROUP_TOKEN"
RUN = "{python} -m torch.distributed.run --standalone --nproc-per-node {ranks}"
POLL_SECONDS = 0.1
# After one rank's error the others have this long to end with an error of their own.
GRACE_SECONDS = 5.0
END_SECONDS = 10.0
# A rank's own log lines begin like this.
RANK_LOG = "rank "
LONGEST_MESSAGE = 64 * 1024 * 1024


@dataclass(frozen=True)
class GroupOptions:
    """How a group is started. `launch` is a command that starts `ranks` processes of what is appended to it.

    `{python}` and `{ranks}` in it are filled in. `address` is where the ranks reach the controller; port 0 takes a free
    one. `options` go to every rank.
    """

    ranks: int = 1
    launch: str = RUN
    address: str = "127.0.0.1:0"
    module: str = "trialgate_gpu.group.rank"
    options: tuple[str, ...] = ()
    silent_seconds: float = 60.0
    start_seconds: float = 600.0


@dataclass
class Rank:
    number: int
    pid: int
    host: str
    writer: asyncio.StreamWriter
    seen: float
    state: Json | None = None
    # A rank ends with its connection. Its process id may then be another process's.
    is_connected: bool = True


class RankLost(GpuWorkerError):
    """Raised when the group has ended by itself. The same command can be tried again, in a new group."""

    def __init__(self, what: str) -> None:
        super().__init__(
            "RankLost", f"{what}: the group of ranks was ended, and the step is tried again", retryable=True
        )


@dataclass
class Group:
    """The ranks of one launch. `call` is used by one command at a time."""

    options: GroupOptions
    ranks: dict[int, Rank] = field(default_factory=dict)
    ended: bool = False
    # The run of the last command. Lines that the ranks wrote before its answer may be read after it.
    _run: str | None = None
    _events: asyncio.Queue[tuple[int, Json]] = field(default_factory=asyncio.Queue)
    _log: deque[str] = field(default_factory=lambda: deque(maxlen=40))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    async def start(cls, options: GroupOptions, progress: Progress) -> Group:
        """Starts the processes and waits until every rank is ready."""
        group = cls(options, _run=run_under_way())
        try:
            # The group stays for other runs: what it starts here must not be of the run that is first.
            await asyncio.create_task(group._launch(), context=Context())
            await group._answers("ready", progress, options.start_seconds)
            group._require_same_code()
        except BaseException:
            await group.end()
            raise
        log.info("a group of %d started: %s", options.ranks, ", ".join(f"{r.host}/{r.pid}" for r in group._in_order()))
        return group

    async def _launch(self) -> None:
        host, _, port = self.options.address.rpartition(":")
        self._token = secrets.token_hex(16)
        self._code: dict[int, str] = {}
        try:
            self._server = await asyncio.start_server(self._accept, host, int(port), limit=LONGEST_MESSAGE)
        except OSError as error:
            what = f"the address {self.options.address} for the ranks cannot be used ({error.strerror})"
            raise GpuWorkerError(
                "BadSettings",
                f"{what}: end the process that uses it, or start the GPU worker with another --group-address",
            ) from None
        bound = self._server.sockets[0].getsockname()[1]
        given = self.options.launch.replace("{python}", shlex.quote(sys.executable))
        command = [*shlex.split(given.replace("{ranks}", str(self.options.ranks))), "-m", self.options.module]
        command += ["--controller", f"{host}:{bound}", *self.options.options]
        root = str(Path(__file__).parent.parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trialgate_gpu.group.launch", str(os.getpid()), *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {TOKEN: self._token, "PYTHONPATH": path},
            start_new_session=True,
            limit=LONGEST_MESSAGE,
        )
        self._keep(self._read_log())

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_log(self) -> None:
        async for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip()
            self._log.append(text)
            if text.startswith(RANK_LOG):
                with about_run(self._run):
                    log.warning("%s", text)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = None
        try:
            hello = json.loads(await asyncio.wait_for(reader.readline(), 30))["hello"]
            if not hmac.compare_digest(hello["token"], self._token):
                return
            number = hello["rank"]
            self.ranks[number] = Rank(number, hello["pid"], hello["host"], writer, time.monotonic())
            self._code[number] = hello["code"]
            if hello["size"] != self.options.ranks:
                what = f"the launch command started {hello['size']} ranks, and `ranks` is {self.options.ranks}"
                message = f"{what}: give both the same number"
                self._events.put_nowait((number, {"error": _error("BadSettings", message)}))
            async for line in reader:
                self._take(self.ranks[number], json.loads(line))
        except (ValueError, KeyError, TypeError, OSError, TimeoutError):
            pass
        finally:
            writer.close()
            if number is not None:
                self.ranks[number].is_connected = False
                self._events.put_nowait((number, {"gone": True}))

    def _take(self, rank: Rank, message: Json) -> None:
        rank.seen = time.monotonic()
        if "beat" in message:
            rank.state = message["beat"]
        else:
            self._events.put_nowait((rank.number, message))

    def _in_order(self) -> list[Rank]:
        return [self.ranks[number] for number in sorted(self.ranks)]

    def _require_same_code(self) -> None:
        if different := sorted(number for number, code in self._code.items() if code != self._code[0]):
            rank = self.ranks[different[0]]
            what = f"rank {rank.number} on {rank.host} runs other code than rank 0 on {self.ranks[0].host}"
            raise GpuWorkerError("BadSettings", f"{what}: install the same release on every host, then resume the run")

    async def call(self, name: str, request: Json, progress: Progress) -> Json:
        """Runs one command on all ranks and returns rank 0's result. A group that cannot go on has ended then."""
        self._run = run_under_way()
        self._empty()
        line = json.dumps({"name": name, "request": request}).encode() + b"\n"
        try:
            for rank in self._in_order():
                rank.writer.write(line)
            answers = await self._answers("result", progress, None)
        except BaseException as error:
            if not getattr(error, "leaves_group", False):
                await self.end()
            raise
        return answers[0]

    def _empty(self) -> None:
        """Forgets old answers, but not that a rank has gone."""
        kept = []
        while not self._events.empty():
            kept.append(self._events.get_nowait())
        for number, message in kept:
            if "gone" in message:
                self._events.put_nowait((number, message))

    async def _answers(self, key: str, progress: Progress, patience: float | None) -> list[Json]:
        """Waits for the answer of every rank, and returns them by rank."""
        answers: dict[int, Json] = {}
        errors: dict[int, Json] = {}
        gone: int | None = None
        deadline = None if patience is None else time.monotonic() + patience
        first = self.ranks.get(0)
        while len(answers) < self.options.ranks:
            progress.check()
            if first is not None and first.state:
                progress.show(**first.state)
            first = self.ranks.get(0)
            with contextlib.suppress(TimeoutError):
                number, message = await asyncio.wait_for(self._events.get(), POLL_SECONDS)
                if key in message:
                    answers[number] = message[key]
                elif "error" in message:
                    errors[number] = message["error"]
                    deadline = min(deadline or float("inf"), time.monotonic() + GRACE_SECONDS)
                elif "gone" in message and gone is None:
                    gone = number
                    # The error of a rank comes before its end, and says more.
                    deadline = min(deadline or float("inf"), time.monotonic() + POLL_SECONDS)
                    continue
            if len(errors) == self.options.ranks:
                break
            if self._process.returncode is not None:
                raise self._lost(errors, "the launch command ended", ended=True)
            if silent := [r for r in self._in_order() if time.monotonic() - r.seen > self.options.silent_seconds]:
                what = f"rank {silent[0].number} was silent for {self.options.silent_seconds:g} s"
                raise self._lost(errors, what)
            if deadline is not None and time.monotonic() > deadline:
                what = "a rank failed" if gone is None else f"rank {gone} ended"
                if not errors and gone is None:
                    what = f"{self.options.ranks - len(self.ranks)} of {self.options.ranks} ranks did not start in time"
                raise self._lost(errors, what, ended=gone is not None)
        if errors:
            first_known = min(errors, key=lambda number: (errors[number]["trace"] is not None, number))
            raise _raised(errors[first_known], leaves_group=self._is_whole_after(errors))
        return [answers[number] for number in sorted(answers)]

    def _is_whole_after(self, errors: dict[int, Json]) -> bool:
        """Returns True when every rank refused the command, so that the next one finds the ranks as this one did.

        After an error that nobody foresaw, a device or a connection may be broken. Memory runs out at different places
        on different ranks, and leaves exchanges that not all of them began.
        """
        alone = self.options.ranks == 1
        return len(errors) == self.options.ranks and all(
            error["trace"] is None and (alone or error["kind"] != "OutOfMemory") for error in errors.values()
        )

    def _lost(self, errors: dict[int, Json], what: str, *, ended: bool = False) -> GpuWorkerError:
        """Returns the error of a rank if there is one. Where a process ended, they may only be its echo."""
        known = [error for error in errors.values() if error["trace"] is None]
        if known or (errors and not ended):
            return _raised(next(iter(known or errors.values())), leaves_group=False)
        lines = [line for line in self._log if line.strip()]
        if lines:
            _log_each("the group's last lines", lines[-20:])
        causes = [line for line in lines if "Error" in line or "error:" in line]
        return RankLost(f"{what} ({causes[-1][-300:]})" if causes else what)

    async def end(self) -> None:
        """Kills every process of the group and waits until they are gone. Nothing of it stays."""
        if self.ended:
            return
        self.ended = True
        self._server.close() if hasattr(self, "_server") else None
        for rank in self.ranks.values():
            rank.writer.close()
        if not hasattr(self, "_process"):
            return
        # A rank that has not said hello yet is known only as a child of the launch command, which must start no more.
        started: list[int] = []
        if self._process.returncode is None:
            _signal(self._process.pid, signal.SIGSTOP)
            started = descendants(self._process.pid)
            _signal(self._process.pid, signal.SIGKILL)
        of_host = [rank for rank in self.ranks.values() if rank.host == socket.gethostname()]
        for pid in {*started, *(rank.pid for rank in of_host if rank.is_connected)}:
            _signal(pid, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        while any(map(is_alive, [*started, *(rank.pid for rank in of_host)])):
            if time.monotonic() > deadline:
                log.error("a rank does not end after SIGKILL: it waits in the kernel")
                break
            await asyncio.sleep(0.02)
        await self._process.wait()
        if self._tasks:
            # The log ends when the last process that writes to it has ended.
            await asyncio.wait(self._tasks, timeout=END_SECONDS)


def _error(kind: str, message: str) -> Json:
    return {"kind": kind, "message": message, "retryable": False, "trace": None}


def _raised(error: Json, *, leaves_group: bool) -> GpuWorkerError:
    if error["trace"]:
        _log_each("a rank failed", error["trace"].splitlines())
    raised = GpuWorkerError(error["kind"], error["message"], retryable=error["retryable"])
    raised.leaves_group = leaves_group
    return raised


def _log_each(what: str, lines: list[str]) -> None:
    for line in lines:
        log.error("%s: %s", what, line)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
