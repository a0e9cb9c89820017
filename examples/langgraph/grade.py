"""The reward: 1 if the agent's result is the row's answer, and half if the number is somewhere in it."""


def score(row, result):
    answer = (result or {}).get("answer", "").strip()
    return 1.0 if answer == str(row["answer"]) else 0.5 * (str(row["answer"]) in answer.split())
