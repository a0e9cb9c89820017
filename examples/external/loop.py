"""Trains on an agent that runs in this program. Replace `answer` and `score` by your own agent and reward."""

import asyncio
import itertools

from openai import AsyncOpenAI, OpenAIError

from trialgate_run import Run, RunEnded, Trial

TASKS = [(a, b) for a in range(2, 10) for b in range(2, 10)]


async def answer(trial: Trial, a: int, b: int) -> str:
    async with AsyncOpenAI(base_url=trial.base_url, api_key=trial.api_key) as client:
        reply = await client.chat.completions.create(
            model=trial.model,
            messages=[{"role": "user", "content": f"What is {a} + {b}? Answer with the number alone."}],
        )
    return reply.choices[0].message.content or ""


def score(text: str, a: int, b: int) -> float:
    return float(str(a + b) in text) - 0.01 * len(text)


async def attempt(trial: Trial, a: int, b: int) -> None:
    try:
        text = await answer(trial, a, b)
    except OpenAIError as error:  # the other trials of the group go on
        await trial.discard(repr(error))
    else:
        await trial.report(score(text, a, b))


async def work(run: Run, tasks: "itertools.cycle[tuple[int, int]]") -> None:
    while True:
        a, b = next(tasks)
        async with run.group(f"{a} + {b}") as trials:
            await asyncio.gather(*(attempt(trial, a, b) for trial in trials))


async def main() -> None:
    run = Run.from_env()
    tasks = itertools.cycle(TASKS)
    try:
        # Works on as many groups at once as an iteration has.
        await asyncio.gather(*(work(run, tasks) for _ in range(4)))
    except RunEnded as ended:
        print(ended)


if __name__ == "__main__":
    asyncio.run(main())
