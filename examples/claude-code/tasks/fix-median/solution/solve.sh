#!/bin/bash
cat > stats.py <<'PYTHON'
def median(numbers):
    """Returns the middle number of a list that is not empty."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
PYTHON
