"""Anthropic's client over several turns that call a tool, plain and streamed."""

import os

from anthropic import Anthropic

client = Anthropic(base_url=os.environ["TRIAL_URL"], api_key=os.environ["TRIAL_KEY"], max_retries=0)
TOOLS = [{"name": "ls", "description": "lists", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]


def converse(stream: bool) -> None:
    messages: list = [{"role": "user", "content": "look"}]
    more = {"model": "policy", "max_tokens": 100, "system": f"messages {stream}", "tools": TOOLS}
    assert client.messages.count_tokens(model="policy", messages=messages, tools=TOOLS).input_tokens > 0
    for _ in range(4):
        if stream:
            with client.messages.stream(messages=messages, **more) as events:
                for _event in events:
                    pass
                message = events.get_final_message()
        else:
            message = client.messages.create(messages=messages, **more)
        assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0
        messages.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "a.txt"}]} for call in calls]
        messages.append({"role": "user", "content": results or "go on"})


converse(False)
converse(True)
