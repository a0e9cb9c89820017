"""Leaves 100,000 files."""

from common import WORK

for number in range(100):
    folder = WORK / f"many-{number}"
    folder.mkdir()
    for each in range(1000):
        (folder / str(each)).touch()
