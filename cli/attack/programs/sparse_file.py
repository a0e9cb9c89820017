"""Leaves a sparse file of a terabyte, or of as much as the sandbox allows."""

import resource

from common import WORK

most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
size = 2**40 if most == resource.RLIM_INFINITY else min(2**40, most)
with open(WORK / "sparse.bin", "wb") as file:
    file.truncate(size)
