"""OpenAI's Agents SDK for Python. It finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment, and speaks Responses by default."""

import asyncio
import sys

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, function_tool, set_tracing_disabled
from pydantic import BaseModel

# Traces go to OpenAI, which a sandbox does not reach.
set_tracing_disabled(True)


class Seen(BaseModel):
    name: str
    count: int


# Tools are strict by default, and vLLM forces the calls of strict tools by a grammar.
@function_tool(strict_mode=False)
def ls(path: str) -> str:
    """Lists a folder."""
    return "a.txt"


@function_tool(name_override="ls")
def strict_ls(path: str) -> str:
    """Lists a folder."""
    return "a.txt"


async def ask(mode: str, protocol: str = "responses", tool=ls, **more):
    agent = Agent(name="looker", instructions="Use your tools.", model="policy", tools=[tool], **more)
    config = RunConfig(model_provider=OpenAIProvider(use_responses=protocol == "responses"))
    return (await Runner.run(agent, f"Look into the folder ({mode}).", run_config=config)).final_output


async def stream(mode: str) -> None:
    agent = Agent(name="looker", instructions="Use your tools.", model="policy", tools=[ls])
    result = Runner.run_streamed(agent, f"Look into the folder ({mode}).")
    async for _event in result.stream_events():
        pass
    assert result.final_output


async def structured(mode: str) -> None:
    assert await ask(mode, output_type=Seen) == Seen(name="a.txt", count=1)


MODES = {
    "responses": ask,
    "responses, streamed": stream,
    "chat": lambda mode: ask(mode, "chat"),
    "strict tools": lambda mode: ask(mode, tool=strict_ls),
    "output_type": structured,
    "tool_choice required": lambda mode: ask(mode, model_settings=ModelSettings(tool_choice="required")),
    "retry": ask,
}


async def main() -> None:
    for name in sys.argv[1:]:
        await MODES[name](name)


asyncio.run(main())
