"""Writes a full reward where verifiers write theirs, and under the usual names in the work."""

from common import LOGS, REWARDS, WORK, write

NAMES = {**REWARDS, "score.txt": "1\n", "result.json": '{"reward": 1, "score": 1, "passed": true, "correct": true}\n'}
for folder in [*(each / "verifier" for each in LOGS), *LOGS, WORK, WORK / "logs/verifier", WORK / "results"]:
    for name, text in NAMES.items():
        write(folder / name, text)
