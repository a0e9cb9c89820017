"""Google's Agent Development Kit, over Gemini's protocol and over LiteLLM. Both find their addresses and keys in the environment."""

import asyncio
import sys

from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models import Gemini
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel

# Without `retry_options` it sends a request once. A name that begins with "gemini-", in place of this model, works as it is.
GEMINI = Gemini(model="policy", retry_options=types.HttpRetryOptions(attempts=3))
CHAT = LiteLlm("openai/policy")


def ls(path: str) -> str:
    """Lists a folder."""
    return "a.txt"


async def minimal(text: str) -> str:
    """Asks the policy, which may call the tool."""
    agent = Agent(name="looker", model=GEMINI, instruction="Use your tools.", tools=[ls])
    return said(await InMemoryRunner(agent).run_debug(text, quiet=True))


def said(events: list) -> str:
    return "".join(part.text or "" for part in events[-1].content.parts)


class Seen(BaseModel):
    """What was seen."""

    name: str
    count: int


async def run(mode: str, streaming: StreamingMode = StreamingMode.NONE, **given) -> str:
    runner = InMemoryRunner(Agent(name="looker", **given))
    return said(await runner.run_debug(f"Look into the folder ({mode}).", quiet=True, run_config=RunConfig(streaming_mode=streaming)))


async def ask(mode: str, streaming: StreamingMode = StreamingMode.NONE, **given) -> None:
    assert await run(mode, streaming, instruction="Use your tools.", tools=[ls], **given)


async def structured(mode: str, **given) -> None:
    assert Seen.model_validate_json(await run(mode, output_schema=Seen, **given)) == Seen(name="a.txt", count=1)


ANY = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY"))
MODES = {
    "Gemini": lambda mode: ask(mode, model=GEMINI),
    "Gemini, streamed": lambda mode: ask(mode, StreamingMode.SSE, model="gemini-2.5-flash"),
    "LiteLlm": lambda mode: ask(mode, model=CHAT),
    "LiteLlm, streamed": lambda mode: ask(mode, StreamingMode.SSE, model=CHAT),
    "output_schema": lambda mode: structured(mode, model=GEMINI),
    "output_schema, LiteLlm": lambda mode: structured(mode, model=CHAT),
    "output_schema with a tool": lambda mode: structured(mode, model=GEMINI, tools=[ls]),
    "function calling ANY": lambda mode: ask(mode, model=GEMINI, generate_content_config=types.GenerateContentConfig(tool_config=ANY)),
    "retry": lambda mode: minimal(f"Look into the folder ({mode})."),
}


async def main() -> None:
    for name in sys.argv[1:]:
        await MODES[name](name)


asyncio.run(main())
