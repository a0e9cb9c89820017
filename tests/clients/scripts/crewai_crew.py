"""A crew of CrewAI. Its LLM finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment."""

import json
import sys

import httpx
from crewai import LLM, Agent, Crew, Task
from crewai.llms.hooks.base import BaseInterceptor
from crewai.tools import tool
from pydantic import BaseModel

# Any name is the policy. For one that CrewAI does not know it assumes a context of 8192 tokens, and summarizes the history at 85% of it.
model = LLM("gpt-4o")


@tool
def ls(path: str) -> str:
    """Lists a folder."""
    return "a.txt"


def minimal(text: str, llm=model, **more):
    """Asks the policy, which may call the tool."""
    agent = Agent(role="looker", goal="Look into folders.", backstory="You use your tools.", llm=llm, tools=[ls])
    task = Task(description=text, expected_output="What you saw.", agent=agent, **more)
    return Crew(agents=[agent], tasks=[task]).kickoff()


class NotStrict(BaseInterceptor[httpx.Request, httpx.Response]):
    """Takes `strict` from the tools of each request."""

    def on_outbound(self, message: httpx.Request) -> httpx.Request:
        body = json.loads(message.content)
        for each in body.get("tools", []):
            each["function"].pop("strict", None)
        headers = {name: value for name, value in message.headers.items() if name != "content-length"}
        return httpx.Request(message.method, message.url, headers=headers, json=body, extensions=message.extensions)

    def on_inbound(self, message: httpx.Response) -> httpx.Response:
        return message


free = LLM("gpt-4o", interceptor=NotStrict())


class Seen(BaseModel):
    """What was seen."""

    name: str
    count: int


def ask(mode: str, llm=model, **more):
    result = minimal(f"Look into the folder ({mode}).", llm, **more)
    assert result.raw
    return result


def structured(mode: str) -> None:
    assert ask(mode, free, output_pydantic=Seen).pydantic == Seen(name="a.txt", count=1)


MODES = {
    "tools": ask,
    "tools, streamed": lambda mode: ask(mode, LLM("gpt-4o", stream=True)),
    "tools, not strict": lambda mode: ask(mode, free),
    "tools, not strict, streamed": lambda mode: ask(mode, LLM("gpt-4o", stream=True, interceptor=NotStrict())),
    "output_pydantic": structured,
    "output_pydantic, not JSON": structured,
    "retry": lambda mode: ask(mode, free),
}
for name in sys.argv[1:]:
    MODES[name](name)
