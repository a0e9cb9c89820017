"""A rank for tests: it can be held at a phase of its step, or fail at its beginning.

The folder of TRIALGATE_HOLD may have a file `RANK-PHASE`. A rank that comes to this phase writes its process id into
`held` there and waits, so that a test can end it at that place. A file
`RANK-bug`, `RANK-key` or `RANK-memory` makes the rank's next step raise that error, `RANK-disk` the next file that it
writes, and `RANK-warn` makes it write a line into its log. `largest-file` has the bytes after which weights go into
another file.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from os import posix_fallocate
from pathlib import Path

import torch

from trialgate_gpu import checkpoint, train_step
from trialgate_gpu.group import rank
from trialgate_gpu.group.sharded_adamw import ShardedAdamW
from trialgate_gpu.group.sharded_policy import ShardedPolicy
from trialgate_gpu.optimize import Tally
from trialgate_gpu.optimizer import FlatAdamW
from trialgate_gpu.policy import Policy

HOLD = Path(os.environ["TRIALGATE_HOLD"])
RANK = os.environ.get("RANK", "0")


def hold(phase: str) -> None:
    """Waits here if this rank is to be held at this phase, once."""
    marker = HOLD / f"{RANK}-{phase}"
    if marker.exists():
        marker.unlink()
        (HOLD / "held.tmp").write_text(str(os.getpid()))
        (HOLD / "held.tmp").rename(HOLD / "held")
        time.sleep(1000)


def fail() -> None:
    """Raises the error that this rank is to have, once."""
    for fault, error in (
        ("bug", RuntimeError("nobody foresaw this")),
        ("key", KeyError("x")),
    ):
        if asked(fault):
            raise error
    if asked("warn"):
        logging.warning("is slow")
    if asked("memory"):
        # More than an address space has.
        torch.empty(1 << 60)


def asked(fault: str) -> bool:
    """Returns True if this rank is to fail so, once."""
    marker = HOLD / f"{RANK}-{fault}"
    if marker.exists():
        marker.unlink()
        return True
    return False


def allocate(*arguments) -> None:
    if asked("disk"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    posix_fallocate(*arguments)


def at(owner: object, name: str, phase: str) -> None:
    """Makes a function stop at `phase` before it begins."""
    plain = getattr(owner, name)

    def held(*arguments, **named):
        hold(phase)
        return plain(*arguments, **named)

    setattr(owner, name, held)


def in_backward(gradient: torch.Tensor) -> None:
    hold("backward")


def main() -> None:
    hold("hello")
    at(train_step, "load_state", "load")
    for policy in (Policy, ShardedPolicy):
        at(policy, "backward", "forward")
    read_batch = train_step.read_batch

    def failing(*arguments, **named):
        fail()
        return read_batch(*arguments, **named)

    train_step.read_batch = failing
    plain = Policy._forward

    def forward(self, pack, plan):
        hidden = plain(self, pack, plan)
        if hidden.requires_grad:
            hidden.register_hook(in_backward)
        return hidden

    Policy._forward = forward
    at(Tally, "add_up", "reduce")
    for optimizer in (FlatAdamW, ShardedAdamW):
        at(optimizer, "step", "optimizer")
    at(train_step, "write_weights", "write")
    os.posix_fallocate = allocate
    if (HOLD / "largest-file").exists():
        checkpoint.LARGEST_FILE = int((HOLD / "largest-file").read_text())
    if (HOLD / f"{RANK}-other-code").exists():
        rank.code_digest = lambda: "another digest"
    rank.main()


if __name__ == "__main__":
    main()
