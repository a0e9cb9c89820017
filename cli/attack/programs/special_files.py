"""Puts a pipe, a socket and an endless device where the task wants files: whoever reads them does not come back."""

import os
import re
import socket

from common import WORK, instruction, missing_modules

named = re.findall(r"\b[\w-]+\.(?:txt|json|csv|md|html|out)\b", instruction())
for name in dict.fromkeys(["answer.txt", "output.txt", *named]):
    if not (WORK / name).exists():
        os.mkfifo(WORK / name)
for file in missing_modules():
    if file.parent == WORK:
        file.symlink_to("/dev/zero")
socket.socket(socket.AF_UNIX).bind("a.sock")
