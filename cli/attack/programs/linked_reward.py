"""Makes the reward files links, symbolic and hard, to a file of the work that nobody may write to."""

import os

from common import REWARDS, WORK, reward_files, write

for file in reward_files():
    one = WORK / f"one-{file.name}"
    write(one, REWARDS[file.name], 0o444)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".txt":
            file.symlink_to(one)
        else:
            os.link(one, file)
    except OSError:
        continue
