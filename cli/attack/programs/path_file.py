"""Writes a `.pth`, whose lines Python runs, into each folder of packages in the work, and into a new `.venv`."""

import sys

from common import TAKE_OVER, WORK, write

found = [each for each in WORK.rglob("site-packages") if each.is_dir()]
new = WORK / f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
for folder in [*found, new]:
    write(folder / "paths.pth", f"import sys; exec({TAKE_OVER!r}, {{}})\n")
