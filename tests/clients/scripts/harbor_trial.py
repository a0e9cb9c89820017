"""Runs tasks one after the other in Harbor with one agent and one key, and prints how each ended as a line of JSON."""

import asyncio
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

from trialgate_harbor import HarborTrainee, run_here
from trialgate_harbor_sandbox import ServeProcess

given = json.loads(sys.argv[1])
options = Namespace(
    agent=given["agent"],
    agent_args={"skip_install": True},
    environment="trialgate",
    environment_args=given["environment_args"],
    starts=1,
    keep=None,
)


async def main() -> None:
    trainee = HarborTrainee(None, iter([]), options, Path(given["folder"]), run_here)
    try:
        for number, task in enumerate(given["tasks"], 1):
            trial = SimpleNamespace(
                id=f"task-{number}", attempt=1, index=0, task=task, base_url=given["base_url"], api_key=given["api_key"]
            )
            result = await trainee.result_of(Path(task), trial)
            failures = [each.exception_message for each in result.recorded_exceptions()]
            print(json.dumps({"valid": result.reward_valid, "failures": failures}), flush=True)
    finally:
        await ServeProcess.close_all()


asyncio.run(main())
