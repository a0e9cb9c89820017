"""LiteLLM's SDK. It finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment; the prefix chooses the protocol."""

import sys

from litellm import completion, stream_chunk_builder
from pydantic import BaseModel

MODEL = "openai/policy"


def minimal(text: str) -> str:
    """Asks the policy once."""
    reply = completion(model=MODEL, messages=[{"role": "user", "content": text}], num_retries=2)
    return reply.choices[0].message.content


TOOLS = [{"type": "function", "function": {"name": "ls", "description": "lists a folder", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}]


class Seen(BaseModel):
    name: str
    count: int


def asking(mode: str) -> list:
    return [{"role": "user", "content": f"Look into the folder ({mode})."}]


def talk(mode: str, stream: bool) -> None:
    messages = asking(mode)
    while True:
        reply = completion(model=MODEL, messages=messages, tools=TOOLS, stream=stream)
        if stream:
            reply = stream_chunk_builder(list(reply), messages=messages)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "a.txt"})


def structured(mode: str) -> None:
    reply = completion(model=MODEL, messages=asking(mode), response_format=Seen)
    assert Seen.model_validate_json(reply.choices[0].message.content) == Seen(name="a.txt", count=1)


def required(mode: str) -> None:
    reply = completion(model=MODEL, messages=asking(mode), tools=TOOLS, tool_choice="required")
    assert reply.choices[0].message.tool_calls[0].function.name == "ls"


def retry(mode: str) -> None:
    assert minimal(f"Look into the folder ({mode}).")


MODES = {
    "completion": lambda mode: talk(mode, stream=False),
    "completion, streamed": lambda mode: talk(mode, stream=True),
    "response_format": structured,
    "tool_choice required": required,
    "retry": retry,
}
for name in sys.argv[1:]:
    MODES[name](name)
