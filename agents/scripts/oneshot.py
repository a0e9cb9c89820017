"""Calls the model once. The first code block of the reply is the solution."""

from __future__ import annotations

import chat
import coding


def main() -> None:
    try:
        reply = chat.ask([{"role": "user", "content": coding.first_prompt()}])
    except chat.Exhausted as error:
        print(error)
        return
    code = coding.first_block(reply)
    if code is None:
        print("the reply holds no closed Python block")
        return
    coding.write_solution(code)


main()
