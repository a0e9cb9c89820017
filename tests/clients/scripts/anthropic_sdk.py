"""Anthropic's Python SDK. It finds ANTHROPIC_BASE_URL and ANTHROPIC_AUTH_TOKEN in its environment."""

import sys

from anthropic import Anthropic
from pydantic import BaseModel

client = Anthropic()


def minimal(text: str) -> str:
    """Asks the policy once."""
    message = client.messages.create(model="policy", max_tokens=100, messages=[{"role": "user", "content": text}])
    return "".join(block.text for block in message.content if block.type == "text")


TOOLS = [{"name": "ls", "description": "lists a folder", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]


class Seen(BaseModel):
    name: str
    count: int


def asked(mode: str) -> dict:
    return {"model": "policy", "max_tokens": 100, "messages": [{"role": "user", "content": f"Look into the folder ({mode})."}]}


def messages(mode: str, stream: bool) -> None:
    talk = asked(mode) | {"system": "Use your tools.", "tools": TOOLS}
    assert client.messages.count_tokens(model="policy", messages=talk["messages"], tools=TOOLS).input_tokens > 0
    for _ in range(4):
        if stream:
            with client.messages.stream(**talk) as events:
                for _event in events:
                    pass
                message = events.get_final_message()
        else:
            message = client.messages.create(**talk)
        assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0
        talk["messages"].append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "a.txt"}]} for call in calls]
        talk["messages"].append({"role": "user", "content": results or "go on"})


def parse(mode: str) -> None:
    assert client.messages.parse(**asked(mode), output_format=Seen).parsed_output == Seen(name="a.txt", count=1)


def any_tool(mode: str) -> None:
    message = client.messages.create(**asked(mode), tools=TOOLS, tool_choice={"type": "any"})
    assert message.content[-1].type == "tool_use"


def retry(mode: str) -> None:
    assert minimal(f"Look into the folder ({mode}).")


MODES = {
    "messages": lambda mode: messages(mode, stream=False),
    "messages, streamed": lambda mode: messages(mode, stream=True),
    "parse": parse,
    "tool_choice any": any_tool,
    "retry": retry,
}
for name in sys.argv[1:]:
    MODES[name](name)
