"""LlamaIndex's agents. Its OpenAI models read OPENAI_API_KEY, but not OPENAI_BASE_URL."""

import asyncio
import os
import sys

from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

model = OpenAILike("policy", api_base=os.environ["OPENAI_BASE_URL"], is_chat_model=True, is_function_calling_model=True)


def ls(path: str) -> str:
    """Lists a folder."""
    return "a.txt"


async def minimal(text: str) -> str:
    """Asks the policy, which may call the tool."""
    return str(await FunctionAgent(tools=[ls], llm=model).run(text))


class Seen(BaseModel):
    """What was seen."""

    name: str
    count: int


async def ask(mode: str, kind=FunctionAgent, **more):
    result = await kind(tools=[ls], llm=model, system_prompt="Use your tools.", **more).run(f"Look into the folder ({mode}).")
    assert str(result)
    return result


async def output_cls(mode: str) -> None:
    result = await ask(mode, output_cls=Seen)
    assert result.get_pydantic_model(Seen) == Seen(name="a.txt", count=1)


async def structured(mode: str) -> None:
    reply = await model.as_structured_llm(Seen).acomplete(f"Look into the folder ({mode}).")
    assert reply.raw == Seen(name="a.txt", count=1)


async def retry(mode: str) -> None:
    assert await minimal(f"Look into the folder ({mode}).")


MODES = {
    "FunctionAgent, streamed": ask,
    "FunctionAgent": lambda mode: ask(mode, streaming=False),
    "ReActAgent": lambda mode: ask(mode, ReActAgent),
    "output_cls": output_cls,
    "as_structured_llm": structured,
    "initial_tool_choice": lambda mode: ask(mode, initial_tool_choice="required"),
    "retry": retry,
}


async def main() -> None:
    for name in sys.argv[1:]:
        await MODES[name](name)


asyncio.run(main())
