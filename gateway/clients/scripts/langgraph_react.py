"""A ReAct graph of LangGraph's own making, until the model calls no more tools."""

import os

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def ls(path: str = ".") -> str:
    """Lists a folder."""
    return "a.txt"


model = ChatOpenAI(model="policy", base_url=os.environ["TRIAL_URL"] + "/v1", api_key=os.environ["TRIAL_KEY"], max_retries=0)
graph = create_agent(model, [ls], system_prompt="Use your tools.")
final = graph.invoke({"messages": [("user", "look")]}, {"recursion_limit": 20})
print(final["messages"][-1].content)
