"""Asks the addresses at which clouds give a machine its settings and keys."""

import sys

from common import reached
from outside import address, asked, get

for server in sys.argv[3:]:
    if asked(address(server), get("/latest/meta-data/")):
        reached(f"the metadata of this machine at {server}")
        break
