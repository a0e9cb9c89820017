"""OpenAI's client over several turns that call a tool: chat, plain and streamed, then responses, by items and by the response before."""

import json
import os

from openai import LengthFinishReasonError, OpenAI

client = OpenAI(base_url=os.environ["TRIAL_URL"] + "/v1", api_key=os.environ["TRIAL_KEY"], max_retries=0)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def final(events):
    """The reply, also one that was cut by its length."""
    try:
        return events.get_final_completion()
    except LengthFinishReasonError as cut:
        return cut.completion


def chat(stream: bool) -> None:
    tools = [{"type": "function", "function": {"name": "ls", "description": "lists", "parameters": SCHEMA}}]
    messages = [{"role": "system", "content": f"chat {stream}"}, {"role": "user", "content": "look"}]
    for _ in range(4):
        if stream:
            with client.chat.completions.stream(model="policy", messages=messages, tools=tools) as events:
                for _event in events:
                    pass
                message = final(events).choices[0].message
        else:
            message = client.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        for call in message.tool_calls or []:
            json.loads(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "a.txt"})
        if not message.tool_calls:
            messages.append({"role": "user", "content": "go on"})


def responses(stream: bool, by_id: bool) -> None:
    tools = [{"type": "function", "name": "ls", "description": "lists", "parameters": SCHEMA}]
    items: list = [{"role": "user", "content": "look"}]
    more = {"instructions": f"responses {stream} {by_id}", "tools": tools, "model": "policy"}
    for _ in range(4):
        if stream:
            with client.responses.stream(input=items, **more) as events:
                for event in events:
                    pass
                # Its own `get_final_response` knows no response that was cut by its length.
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


for streamed in (False, True):
    chat(streamed)
    responses(streamed, False)
    responses(streamed, True)
assert [model.id for model in client.models.list()] == ["policy"]
