#!/bin/bash
# The version alone counts, with or without a line break.
if [ "$(tr -d '[:space:]' < /app/answer.txt)" = 1.5.2 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
