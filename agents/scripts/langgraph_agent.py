"""A LangGraph ReAct graph as an agent. A malformed tool call comes back to the model as an error: an ordinary turn."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from workspace import read_file, run_command, write_file

STEPS = 50


def run(task: Any, model: Any) -> dict[str, str] | None:
    llm = ChatOpenAI(base_url=model.base_url, api_key=model.api_key, model=model.model)
    agent = create_agent(llm, [tool(read_file), tool(write_file), tool(run_command)])
    try:
        state = agent.invoke({"messages": task.messages}, {"recursion_limit": STEPS})
    except GraphRecursionError:
        print(f"the agent did not finish within {STEPS} steps")
        return None
    return {"answer": state["messages"][-1].text}
