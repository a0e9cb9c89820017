"""The reward: 1 for a sentence of at most twelve words with the word in it, less for each word more."""


def score(row, transcript):
    words = (transcript[-1]["content"] or "").lower().split()
    has_word = any(row["word"] in word for word in words)
    return float(has_word) / (1 + max(0, len(words) - 12) / 12)
