"""Calls the agent's `median` in a process of its own, which does not know the right results.

Writes the share of the results that are right.
"""

import json
import os
import subprocess
import sys

CASES = [([3, 1, 2], 2), ([4, 1, 3, 2], 2.5), ([9, 7, 8, 1, 2], 7), ([5, -2], 1.5)]
CALL = """
import json, sys
from stats import median
given = json.loads(sys.argv[1])
kept = list(given)
print(json.dumps([median(given), given == kept]))
"""


def is_right(numbers, expected):
    try:
        called = subprocess.run(
            [sys.executable, "-c", CALL, json.dumps(numbers)],
            cwd=os.environ.get("WORK_DIR", "/app"),
            capture_output=True,
            timeout=5,
        )
        return json.loads(called.stdout) == [expected, True]
    except (subprocess.TimeoutExpired, ValueError):
        return False


right = [is_right(numbers, expected) for numbers, expected in CASES]
with open(os.path.join(os.environ.get("LOGS_DIR", "/logs"), "verifier", "reward.txt"), "w") as file:
    file.write(str(sum(right) / len(right)))
