"""Scores solution.py by the share of cases that it gets right. Every bundled task has the same file.

The solution runs in a child process, which gets only the arguments. The parent reads the expected results after the
child was made, compares, ends the child, and writes the reward last.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

# A call may take so much processor time, and may sleep so long. The clock does not count, because a busy machine must
# not cost a good solution its reward. It ends the run only far beyond these limits.
CASE_CPU_SECONDS = 0.3
CASE_ASLEEP_SECONDS = 0.5
TOTAL_SECONDS = 20.0
POLL_SECONDS = 0.1
PROCESSOR_SECONDS = 5  # The limit of one child, in case it escapes the limit of a call.
MEMORY_BYTES = 256 * 2**20
RESULT_BYTES = 65_536

TESTS = os.environ.get("TESTS_DIR", "/tests")
WORK = os.environ.get("WORK_DIR", "/app")
REWARD = os.path.join(os.environ.get("LOGS_DIR", "/logs"), "verifier", "reward.txt")


def main() -> None:
    write_reward(0.0)  # Stands if the solution manages to end this process.
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: the child may not look into this process.
    child = Child(fresh=False)
    function, cases = read_cases()
    deadline = time.monotonic() + TOTAL_SECONDS
    passed, position = 0, 0
    child.start(function, [case["args"] for case in cases], deadline)
    while position < len(cases):
        answer = child.next_answer(deadline)
        right = answer is not None and is_right(answer, cases[position]["expected"])
        passed += right
        print(f"{'pass' if right else 'fail'}: {function}({', '.join(map(repr, cases[position]['args']))})")
        position += 1
        if answer is None:
            child.end()
            if not child.loaded or time.monotonic() >= deadline:
                break
            child = Child(fresh=True)
            child.start(function, [case["args"] for case in cases[position:]], deadline)
    child.end()
    print(f"{passed} of {len(cases)} passed")
    write_reward(passed / len(cases))


class Child:
    """Calls the solution in a process group of its own. A fresh child is a new interpreter."""

    def __init__(self, *, fresh: bool) -> None:
        self.loaded = False
        self.buffer = b""
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.close(self.requests)
            os.close(self.answers)
            if fresh:
                os.set_inheritable(requests, True)
                os.set_inheritable(answers, True)
                os.execv(sys.executable, [sys.executable, "-I", "-S", "-E", __file__, str(requests), str(answers)])
            solve(requests, answers)
        os.close(requests)
        os.close(answers)

    def start(self, function: str, arguments: list[list[Any]], deadline: float) -> None:
        data = json.dumps([function, arguments]).encode()
        with os.fdopen(self.requests, "wb") as pipe:
            try:
                pipe.write(data)
                pipe.flush()
            except OSError:
                pass
        self.loaded = self.line(deadline) == b"loaded"

    def next_answer(self, deadline: float) -> bytes | None:
        """Returns the next result as JSON, empty when the call raised; None when there are no more."""
        return self.line(deadline) if self.loaded else None

    def line(self, deadline: float) -> bytes | None:
        asleep = 0.0
        while b"\n" not in self.buffer:
            if not select.select([self.answers], [], [], POLL_SECONDS)[0]:
                asleep += POLL_SECONDS if self.is_asleep() else 0
                if asleep >= CASE_ASLEEP_SECONDS or time.monotonic() >= deadline:
                    return None
                continue
            data = os.read(self.answers, 65_536)
            if not data or len(self.buffer) > RESULT_BYTES:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def is_asleep(self) -> bool:
        try:
            with open(f"/proc/{self.pid}/stat", encoding="latin-1") as file:
                return file.read().rpartition(") ")[2][0] not in "RD"
        except OSError:
            return True

    def end(self) -> None:
        if not self.pid:
            return
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except OSError:
                pass
        os.waitpid(self.pid, 0)
        os.close(self.answers)
        self.pid = 0


def solve(requests: int, answers: int) -> None:
    """Runs in the child: calls the solution with each of the arguments and writes a line for each. Does not return."""
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(quiet, stream)
        limit()
        confine()
        with os.fdopen(requests, "rb") as pipe:
            function, arguments = json.loads(pipe.read())
        signal.setitimer(signal.ITIMER_PROF, CASE_CPU_SECONDS)  # Its signal ends this process.
        names = load(os.path.join(WORK, "solution.py"))
        os.write(answers, b"loaded\n")
        for args in arguments:
            signal.setitimer(signal.ITIMER_PROF, CASE_CPU_SECONDS)
            try:
                line = json.dumps(names[function](*args)).encode()
            except BaseException:  # SystemExit too: only this case is lost
                line = b""
            os.write(answers, line[:RESULT_BYTES] + b"\n")
    finally:
        os._exit(0)


def load(path: str) -> dict[str, Any]:
    """Returns what the solution defines, also when its last lines fail, such as a demonstration that reads input."""
    names: dict[str, Any] = {"__name__": "solution"}
    try:
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), names)
    except BaseException:
        return names
    return names


def confine() -> None:
    """Forbids this process to change files, open connections or touch the verifier, where the kernel has Landlock."""
    libc = ctypes.CDLL(None)
    version = libc.syscall(444, None, 0, 1)
    if version < 1:
        return
    changes = 0b0001_1111_1111_0010 | (version >= 2) << 13 | (version >= 3) << 14
    rules = (ctypes.c_uint64 * 3)(changes, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which Landlock asks for.
    ruleset = libc.syscall(444, rules, 8 if version < 4 else 16 if version < 6 else 24, 0)
    libc.syscall(446, ruleset, 0)
    os.close(ruleset)


def limit() -> None:
    """Forbids files and processes, and limits memory and processor time to what the cases may take."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CPU, PROCESSOR_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def read_cases() -> tuple[str, list[dict[str, Any]]]:
    """Reads the cases and removes their file. It must run before any solution."""
    path = os.path.join(TESTS, "cases.json")
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    try:
        os.unlink(path)
    except OSError:
        pass
    return data["function"], data["cases"]


def is_right(answer: bytes, expected: Any) -> bool:
    try:
        value: Any = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    if is_number(value) and is_number(expected):
        try:
            return abs(value - expected) <= 1e-6
        except OverflowError:  # An integer that no float can hold.
            return False
    return type(value) is type(expected) and value == expected


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def write_reward(reward: float) -> None:
    part = f"{REWARD}.part"
    if os.path.lexists(part):
        os.unlink(part)
    with open(part, "x", encoding="ascii") as file:
        file.write(f"{reward:.6f}\n")
    os.replace(part, REWARD)


if len(sys.argv) == 3:
    solve(int(sys.argv[1]), int(sys.argv[2]))
try:
    main()
except BaseException:
    os.unlink(REWARD)  # A fault of these tests is not the solution's.
    raise
