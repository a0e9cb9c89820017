"""Agents of Harbor for tests. Each asks the model once from inside its environment, and writes the reply to a file."""

import os
from pathlib import Path
from typing import override

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.trial.errors import AgentSetupTimeoutError

from trialgate_harbor_sandbox import ServeProcess

ASK = """
import json, os, urllib.request
body = {"model": "policy", "messages": [{"role": "user", "content": os.environ["ASK_TEXT"]}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


class AskingAgent(BaseAgent):
    @staticmethod
    @override
    def name() -> str:
        return "asking"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        await environment.exec("echo set up > /tmp/setup")

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        asked = await environment.exec(
            f"test -f /tmp/setup && python3 -c '{ASK}' > answer.txt", env={"ASK_TEXT": instruction}
        )
        if asked.return_code != 0:
            raise RuntimeError(f"the question failed: {asked.stderr}")


def is_first(mark: str) -> bool:
    """Returns True the first time that it is asked for this mark, in all trials of a program."""
    try:
        Path(os.environ["MARKS"], mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Timeout(Exception):
    """Harbor sorts failures by the name of their class. This is LiteLLM's."""


class TroubledAgent(AskingAgent):
    """Has in one trial the trouble that the name of its task says."""

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        if environment.environment_name == "slow-setup" and is_first("slow-setup"):
            raise AgentSetupTimeoutError("the setup took too long")
        await super().setup(environment)

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        name = environment.environment_name
        if name == "lost-server" and is_first(name):
            raise Timeout("the model's server gave no answer")
        if name == "muted" and is_first(name):
            # Then its tests give no reward.
            await environment.exec("touch muted")


class LostSandbox(AskingAgent):
    """Works in one trial while the process that gives the sandboxes is killed."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        if is_first("lost-sandbox"):
            (starting,) = ServeProcess._shared.values()
            starting.result()._process.kill()
        await environment.exec("sleep 1")


class SleepingAgent(AskingAgent):
    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        await environment.exec("sleep 4871")
