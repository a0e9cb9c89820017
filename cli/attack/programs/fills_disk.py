"""Writes more than its limit of disk, so that its agent is ended for it."""

import resource
import time

from common import WORK, not_possible

MOST = 2**29
limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
if limit == resource.RLIM_INFINITY or limit > MOST:
    not_possible("its limit of disk is above 512 MB, and this attack does not fill so much")
block = b"x" * 2**20
for number in range(4):
    try:
        with open(WORK / f"full-{number}.bin", "wb") as file:
            for _ in range(limit // len(block) + 1):
                file.write(block)
    except OSError:
        continue
time.sleep(3)  # Disk is counted every two seconds.
