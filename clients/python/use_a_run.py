"""Uses the client of external runs for one group, for tests/e2e/external.test.ts."""

import asyncio
import json
import urllib.request

from trialgate_run import Run, RunEnded, Trial


def ask(trial: Trial) -> None:
    body = json.dumps({"model": trial.model, "messages": [{"role": "user", "content": trial.task}]}).encode()
    headers = {"Authorization": f"Bearer {trial.api_key}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{trial.base_url}/chat/completions", data=body, headers=headers)
    ) as reply:
        assert reply.status == 200


async def main() -> None:
    run = Run.from_env()
    try:
        async with run.group("a task") as trials:
            assert [trial.index for trial in trials] == [0, 1, 2], trials
            await asyncio.gather(*(asyncio.to_thread(ask, trial) for trial in trials))
            assert await trials[0].report(1)
            assert await trials[0].report(1)
            assert not await trials[0].report(0)
            assert await trials[1].report({"exact": 0.5, "short": 2})
            raise ValueError("the agent broke")
    except ValueError:
        pass
    try:
        async with run.group("another task"):
            raise AssertionError("the run has no second group")
    except RunEnded as ended:
        print(ended.status)


asyncio.run(main())
