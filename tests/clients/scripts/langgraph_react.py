"""A ReAct agent of LangGraph. ChatOpenAI finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment."""

import sys

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

model = ChatOpenAI(model="policy")


@tool
def ls(path: str = ".") -> str:
    """Lists a folder."""
    return "a.txt"


def minimal(text: str) -> str:
    """Asks the policy, which may call the tool."""
    agent = create_agent(model, [ls], system_prompt="Use your tools.")
    return agent.invoke({"messages": [("user", text)]}, {"recursion_limit": 20})["messages"][-1].text


class Seen(BaseModel):
    """What was seen."""

    name: str
    count: int


def ask(mode: str, **more) -> dict:
    graph = create_agent(model, [ls], system_prompt="Use your tools.", **more)
    return graph.invoke({"messages": [("user", f"Look into the folder ({mode}).")]}, {"recursion_limit": 20})


def stream(mode: str) -> None:
    graph = create_agent(model, [ls], system_prompt="Use your tools.")
    asked = {"messages": [("user", f"Look into the folder ({mode}).")]}
    assert len(list(graph.stream(asked, {"recursion_limit": 20}, stream_mode="messages"))) > 0


def retry(mode: str) -> None:
    assert minimal(f"Look into the folder ({mode}).")


def structured(mode: str, strategy) -> None:
    assert ask(mode, response_format=strategy)["structured_response"] == Seen(name="a.txt", count=1)


MODES = {
    "invoke": ask,
    "stream": stream,
    "ToolStrategy": lambda mode: structured(mode, ToolStrategy(Seen)),
    "ProviderStrategy": lambda mode: structured(mode, ProviderStrategy(Seen)),
    "retry": retry,
}
for name in sys.argv[1:]:
    MODES[name](name)
