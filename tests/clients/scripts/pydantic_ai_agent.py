"""pydantic-ai over three protocols. Its models find OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_AUTH_TOKEN in their environment."""

import asyncio
import sys

from anthropic import AsyncAnthropic
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, Tool
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider

# Tools are strict by default, and vLLM forces the calls of strict tools by a grammar.
FREE = OpenAIModelProfile(openai_supports_strict_tool_definition=False)
CHAT = OpenAIChatModel("policy", profile=FREE)
# This model asks for a JSON object only in words.
PLAIN = OpenAIChatModel("policy", profile=OpenAIModelProfile(**FREE, supports_json_object_output=False))
RESPONSES = OpenAIResponsesModel("policy", profile=FREE)
MESSAGES = AnthropicModel("policy", provider=AnthropicProvider(anthropic_client=AsyncAnthropic()))

STRICT = OpenAIChatModel("policy")


class Seen(BaseModel):
    """What was seen."""

    name: str
    count: int


async def ls(path: str) -> str:
    """Lists a folder."""
    return "a.txt"


async def text(mode: str, model, tool=ls) -> None:
    assert (await Agent(model, tools=[tool]).run(f"Look into the folder ({mode}).")).output


async def stream(mode: str) -> None:
    async with Agent(CHAT, tools=[ls]).run_stream(f"Look into the folder ({mode}).") as result:
        assert await result.get_output()


async def structured(mode: str, output_type, model=CHAT) -> None:
    result = await Agent(model, tools=[ls], output_type=output_type).run(f"Look into the folder ({mode}).")
    assert result.output == Seen(name="a.txt", count=1)


MODES = {
    "chat": lambda mode: text(mode, CHAT),
    "chat, streamed": stream,
    "responses": lambda mode: text(mode, RESPONSES),
    "messages": lambda mode: text(mode, MESSAGES),
    "strict tools": lambda mode: text(mode, STRICT),
    "strict tools, responses": lambda mode: text(mode, OpenAIResponsesModel("policy")),
    "strict=False on the tool": lambda mode: text(mode, STRICT, Tool(ls, strict=False)),
    "output_type": lambda mode: structured(mode, Seen),
    "NativeOutput": lambda mode: structured(mode, NativeOutput(Seen)),
    "PromptedOutput": lambda mode: structured(mode, PromptedOutput(Seen)),
    "PromptedOutput, plain": lambda mode: structured(mode, PromptedOutput(Seen), PLAIN),
    "retry": lambda mode: text(mode, MESSAGES),
}


async def main() -> None:
    for name in sys.argv[1:]:
        await MODES[name](name)


asyncio.run(main())
