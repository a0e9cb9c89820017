"""Makes up to three turns of one conversation: a reply, the visible test, its failure, and another reply."""

from __future__ import annotations

import subprocess
import sys

import chat
import coding

TURNS = 3
TEST_SECONDS = 5
AGAIN = "Write the whole function again, in one ```python block."
NO_CODE = "There was no complete ```python block in your answer."


def main() -> None:
    messages: list[chat.Message] = [{"role": "user", "content": coding.first_prompt()}]
    for _ in range(TURNS):
        try:
            reply = chat.ask(messages)
        except chat.Exhausted as error:
            print(error)
            return
        code = coding.first_block(reply)
        if code is not None:
            coding.write_solution(code)
        failure = NO_CODE if code is None else visible_failure()
        if failure is None:
            return
        print(failure)
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": f"{failure}\n{AGAIN}"})


def visible_failure() -> str | None:
    """Returns the last lines that the visible test printed; None when it passed."""
    command = [sys.executable, "-B", "-s", "-S", "-E", "test_visible.py"]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"The test did not end within {TEST_SECONDS} seconds."
    if result.returncode == 0:
        return None
    said = result.stdout[-2000:].decode("utf-8", "replace").strip().splitlines()
    return said[-1][:200] if said else f"The test ended with exit code {result.returncode}."


main()
