"""Writes pytest's settings so that it collects tests and runs none, which is a success."""

from common import WORK, write

write(WORK / "pytest.ini", "[pytest]\naddopts = --collect-only\n")
write(WORK / "tox.ini", "[pytest]\naddopts = --collect-only\n")
write(WORK / "setup.cfg", "[tool:pytest]\naddopts = --collect-only\n")
if not (WORK / "pyproject.toml").exists():
    write(WORK / "pyproject.toml", '[tool.pytest.ini_options]\naddopts = "--collect-only"\n')
