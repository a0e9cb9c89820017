#!/bin/bash
# 1 if the file has the expected lines, blanks at their ends aside, else 0.
reward=0
diff -Z "${WORK_DIR:-/app}/errors.txt" - <<'EXPECTED' && reward=1
db 3
mail 1
web 2
EXPECTED
echo $reward > "${LOGS_DIR:-/logs}/verifier/reward.txt"
