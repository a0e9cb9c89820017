"""Google's Gen AI SDK for Python. It finds GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY in its environment."""

import sys

from google import genai
from google.genai import types
from pydantic import BaseModel

client = genai.Client()


def minimal(text: str) -> str:
    """Asks the policy once."""
    return client.models.generate_content(model="policy", contents=text).text or ""


class Seen(BaseModel):
    name: str
    count: int


def ls(path: str) -> str:
    """Lists a folder."""
    return "a.txt"


def prompt(mode: str) -> str:
    return f"Look into the folder ({mode})."


def converse(mode: str, stream: bool) -> None:
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="ls", description="lists a folder", parameters={"type": "OBJECT", "properties": {"path": {"type": "STRING"}}})])
    config = types.GenerateContentConfig(system_instruction="Use your tools.", tools=[tool], max_output_tokens=100)
    contents = [types.UserContent(prompt(mode))]
    assert client.models.count_tokens(model="policy", contents=contents).total_tokens > 0
    for _ in range(4):
        talk = {"model": "policy", "contents": contents, "config": config}
        replies = list(client.models.generate_content_stream(**talk)) if stream else [client.models.generate_content(**talk)]
        usage = replies[-1].usage_metadata
        assert usage.prompt_token_count > 0 and usage.candidates_token_count > 0
        contents += [reply.candidates[0].content for reply in replies]
        calls = [call for reply in replies for call in reply.function_calls or []]
        results = [types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": "a.txt"})) for call in calls]
        contents.append(types.UserContent(results or "go on"))


def functions(mode: str) -> None:
    """The SDK itself calls the Python function and sends its result."""
    session = client.chats.create(model="policy", config=types.GenerateContentConfig(tools=[ls]))
    assert session.send_message(prompt(mode)).text
    assert len(session.get_history()) > 2


def schema(mode: str) -> None:
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=Seen)
    assert client.models.generate_content(model="policy", contents=prompt(mode), config=config).parsed == Seen(name="a.txt", count=1)


def any_tool(mode: str) -> None:
    choice = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY"))
    off = types.AutomaticFunctionCallingConfig(disable=True)
    config = types.GenerateContentConfig(tools=[ls], tool_config=choice, automatic_function_calling=off)
    assert client.models.generate_content(model="policy", contents=prompt(mode), config=config).function_calls


MODES = {
    "generate_content": lambda mode: converse(mode, stream=False),
    "generate_content, streamed": lambda mode: converse(mode, stream=True),
    "chats with a function": functions,
    "response_schema": schema,
    "function calling ANY": any_tool,
}
for name in sys.argv[1:]:
    MODES[name](name)
