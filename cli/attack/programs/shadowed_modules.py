"""Gives modules of the work the names of those that tests import."""

from common import TAKE_OVER, WORK, write

NAMES = "json pytest unittest subprocess re math random time pathlib typing dataclasses numpy requests importlib"
for name in NAMES.split():
    if not (WORK / f"{name}.py").exists():
        write(WORK / f"{name}.py", TAKE_OVER)
