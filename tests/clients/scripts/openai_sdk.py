"""OpenAI's Python SDK. It finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment."""

import json
import sys

import openai
from openai import OpenAI
from pydantic import BaseModel

client = OpenAI()


def minimal(text: str) -> str | None:
    """Asks the policy once."""
    reply = client.chat.completions.create(model="policy", messages=[{"role": "user", "content": text}])
    return reply.choices[0].message.content


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
FUNCTION = {"name": "ls", "description": "lists a folder", "parameters": SCHEMA}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
RESPONSES_TOOLS = [{"type": "function", **FUNCTION}]


class Seen(BaseModel):
    name: str
    count: int


def final(events):
    """The reply, also one that was cut by its length."""
    try:
        return events.get_final_completion()
    except openai.LengthFinishReasonError as cut:
        return cut.completion


def chat(mode: str, stream: bool) -> None:
    messages = [{"role": "system", "content": "Use your tools."}, {"role": "user", "content": f"Look into the folder ({mode})."}]
    for _ in range(4):
        if stream:
            with client.chat.completions.stream(model="policy", messages=messages, tools=CHAT_TOOLS) as events:
                for _event in events:
                    pass
                message = final(events).choices[0].message
        else:
            message = client.chat.completions.create(model="policy", messages=messages, tools=CHAT_TOOLS).choices[0].message
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        for call in message.tool_calls or []:
            json.loads(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "a.txt"})
        if not message.tool_calls:
            messages.append({"role": "user", "content": "go on"})


def responses(mode: str, stream: bool, by_id: bool) -> None:
    items: list = [{"role": "user", "content": f"Look into the folder ({mode})."}]
    more = {"instructions": "Use your tools.", "tools": RESPONSES_TOOLS, "model": "policy"}
    for _ in range(4):
        if stream:
            with client.responses.stream(input=items, **more) as events:
                for event in events:
                    pass
                # The SDK's `get_final_response` does not support a response that was cut by its length.
                response = event.response
        else:
            response = client.responses.create(input=items, **more)
        calls = [item for item in response.output if item.type == "function_call"]
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "a.txt"} for call in calls]
        results = results or [{"role": "user", "content": "go on"}]
        if by_id:
            items, more["previous_response_id"] = results, response.id
        else:
            items = items + [item.model_dump(exclude_none=True) for item in response.output] + results


def parse(mode: str) -> None:
    messages = [{"role": "user", "content": f"Look into the folder ({mode})."}]
    completion = client.chat.completions.parse(model="policy", messages=messages, response_format=Seen)
    assert completion.choices[0].message.parsed == Seen(name="a.txt", count=1)


def required(mode: str) -> None:
    messages = [{"role": "user", "content": f"Look into the folder ({mode})."}]
    completion = client.chat.completions.create(model="policy", messages=messages, tools=CHAT_TOOLS, tool_choice="required")
    assert completion.choices[0].message.tool_calls[0].function.name == "ls"


def retry(mode: str) -> None:
    assert minimal(f"Look into the folder ({mode}).")


MODES = {
    "chat": lambda mode: chat(mode, stream=False),
    "chat, streamed": lambda mode: chat(mode, stream=True),
    "responses": lambda mode: responses(mode, stream=False, by_id=False),
    "responses, streamed": lambda mode: responses(mode, stream=True, by_id=False),
    "responses by id": lambda mode: responses(mode, stream=False, by_id=True),
    "responses by id, streamed": lambda mode: responses(mode, stream=True, by_id=True),
    "parse": parse,
    "tool_choice required": required,
    "retry": retry,
}
for name in sys.argv[1:]:
    MODES[name](name)
assert [model.id for model in client.models.list()] == ["policy"]
