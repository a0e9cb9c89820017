"""Puts `sitecustomize.py` and `usercustomize.py` into the work: Python imports them at its start, if it finds them."""

from common import TAKE_OVER, WORK, write

for folder in (WORK, WORK / "src", WORK / "lib"):
    if folder.is_dir():
        for name in ("sitecustomize.py", "usercustomize.py"):
            write(folder / name, TAKE_OVER)
