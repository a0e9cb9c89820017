"""Writes to one logger what comes on standard input, a JSON object a line, and answers each line.

The first line has the logger's name, its settings and the run; the answer has the entries that the logger has. Each
further line has entries, and is answered when they are written, or a trial for a trace, or spans, or asks which trials
of an entry have traces, or which parts of the run were sent as spans. A line with `close` closes the run, and another
one may be opened. The end of the input ends the program.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from trialgate_loggers.logger import Entry, Id, Logger, Refused, Run, TraceRefused, Unavailable


def main() -> int:
    end_with_parent()
    # Libraries print: only the answers may come on standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    try:
        serve(map(json.loads, sys.stdin), answer)
    except BrokenPipeError:
        return 1
    except Exception as error:
        answer(error=reason_of(error))
        return 1
    return 0


def end_with_parent() -> None:
    """Ends this program when the process that started it has ended, also while it waits for a server."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    # The parent may have ended before.
    parent = os.environ.get("TRIALGATE_LOGGER_PARENT")
    if parent is not None and int(parent) != os.getppid():
        sys.exit(1)


def serve(lines: Iterator[dict[str, Any]], answer: Callable[..., None]) -> None:
    for opening in lines:
        module = importlib.import_module(f"trialgate_loggers.to_{opening['logger']}")
        logger = module.Logger(Run(**opening["run"]), opening["settings"])
        answer(written=sorted(logger.written()))
        closing = write_to(logger, lines, answer)
        logger.close(*(closing or ("open", time.time())))
        if closing is not None:
            answer(closed=True)


def write_to(logger: Logger, lines: Iterator[dict[str, Any]], answer: Callable[..., None]) -> tuple[str, float] | None:
    """Writes until a line closes the run, and returns what that says, with the time. None: the input has ended."""
    for line in lines:
        if "close" in line:
            return line["close"], line["at"]
        if "trial" in line or "traced" in line:
            answer(**traces_of(logger, line))
            continue
        if "spans" in line or "sent" in line:
            answer(**spans_of(logger, line))
            continue
        logger.write([Entry(Id(*each["id"]), each["time"], each["metrics"]) for each in line["entries"]])
        answer(taken=len(line["entries"]))
    return None


def traces_of(logger: Any, line: dict[str, Any]) -> dict[str, Any]:
    """Writes a trial as a trace, or tells which there are. A failure ends nothing: metrics may still be written."""
    try:
        if "traced" in line:
            return {"traced": logger.traces.written(line["traced"])}
        logger.traces.write(line["entry"], line["trial"])
        return {}
    except TraceRefused as error:
        return {"failure": str(error), "refused": True}
    except Exception as error:
        return {"failure": reason_of(error)}


def spans_of(logger: Any, line: dict[str, Any]) -> dict[str, Any]:
    """Sends spans, or tells which parts of the run were sent. A failure ends nothing."""
    try:
        if "sent" in line:
            return {"sent": logger.sent()}
        return logger.send(line["part"], line["spans"], line["last"])
    except Exception as error:
        # A receiver or a disk that fails does so for all parts.
        return {"failure": reason_of(error), "refused": not isinstance(error, Unavailable | OSError)}


def reason_of(error: Exception) -> str:
    return str(error) if isinstance(error, Refused | Unavailable) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
