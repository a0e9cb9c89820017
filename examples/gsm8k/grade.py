"""A reward of one's own: does the reply say its answer as it was asked to?"""

import re


def marked(transcript):
    return float(re.search(r"^#### -?[\d.,]+\s*$", transcript[-1]["content"] or "", re.MULTILINE) is not None)
