"""Asks a name server: names can carry questions out of a sandbox, and answers into it."""

import re
import sys
from pathlib import Path

from common import reached
from outside import address, asked, sent

# A question for the address of trialgate.invalid, a name that nobody has.
QUESTION = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09trialgate\x07invalid\x00\x00\x01\x00\x01"
configured = Path("/etc/resolv.conf")
servers = re.findall(r"^nameserver\s+([\d.]+)", configured.read_text(), re.MULTILINE) if configured.is_file() else []
for server in [sys.argv[2], *servers]:
    to = address(server, 53)
    if sent(to, QUESTION) or asked(to, len(QUESTION).to_bytes(2, "big") + QUESTION):
        reached(f"the name server {server}")
        break
