"""An agent of the OpenAI Agents SDK. A malformed tool call comes back to the model as an error: an ordinary turn."""

from __future__ import annotations

from typing import Any

from agents import Agent, MaxTurnsExceeded, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from workspace import read_file, run_command, write_file

TURNS = 25

# Traces go to OpenAI, which a sandbox does not reach.
set_tracing_disabled(True)


async def run(task: Any, model: Any) -> dict[str, str] | None:
    client = AsyncOpenAI(base_url=model.base_url, api_key=model.api_key)
    # vLLM forces the calls of strict tools by a grammar, and such calls train only with a sampling mask.
    tools = [function_tool(each, strict_mode=False) for each in (read_file, write_file, run_command)]
    agent = Agent(name="worker", tools=tools, model=OpenAIChatCompletionsModel(model.model, client))
    try:
        result = await Runner.run(agent, task.messages, max_turns=TURNS)
    except MaxTurnsExceeded:
        print(f"the agent did not finish within {TURNS} turns")
        return None
    return {"answer": str(result.final_output)}
