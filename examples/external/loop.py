"""Trains on an agent that runs in this program. Replace `answer` and `score` by your own agent and reward."""

import asyncio
import itertools

from openai import AsyncOpenAI

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


async def train_on(run: Run, a: int, b: int) -> None:
    async with run.group(f"{a} + {b}") as trials:

        async def attempt(trial: Trial) -> None:
            await trial.report(score(await answer(trial, a, b), a, b))

        await asyncio.gather(*(attempt(trial) for trial in trials))


async def main() -> None:
    run = Run.from_env()
    tasks = itertools.cycle(TASKS)

    async def work() -> None:
        while True:
            await train_on(run, *next(tasks))

    try:
        # As many groups at once as an iteration has.
        await asyncio.gather(*(work() for _ in range(4)))
    except RunEnded as ended:
        print(ended)


if __name__ == "__main__":
    asyncio.run(main())
