#!/bin/bash
# The digits alone count, with or without a line break.
if [ "$(tr -d '[:space:]' < /app/answer.txt)" = 3 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
