"""Looks at processes of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Returns False also for a process that has ended and for which nobody has waited."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        # There is no /proc, or the process has just ended.
        return not Path("/proc/self").exists()


def descendants(pid: int) -> list[int]:
    """Returns the children of a process, their children, and so on. Returns none where there is no /proc."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(each) for each in path.read_text().split()]
        except OSError:
            # The thread has just ended.
            continue
        found += [each for child in children for each in (child, *descendants(child))]
    return found
