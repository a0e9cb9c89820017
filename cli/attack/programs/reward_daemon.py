"""Leaves a process that writes a full reward again and again."""

import time

from common import REWARDS, daemon, reward_files, write


def keep_writing() -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for file in reward_files():
            new = file.with_name(".new")
            if write(new, REWARDS[file.name]):
                new.replace(file)


daemon(keep_writing)
