"""A LangGraph agent with a tool, as a Python function: Trialgate calls `run` for each trial."""

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def calculate(expression: str) -> str:
    """Calculates an arithmetic expression such as `12 * (3 + 4)`."""
    if not set(expression) <= set("0123456789+-*/(). "):
        return "error: only numbers and + - * / ( )"
    try:
        return str(eval(expression, {"__builtins__": {}}))
    except (ArithmeticError, SyntaxError) as error:
        return f"error: {error}"


def run(task, model):
    llm = ChatOpenAI(base_url=model.base_url, api_key=model.api_key, model=model.model)
    agent = create_agent(llm, [calculate], system_prompt="Use the tool to calculate. Answer with the number alone.")
    state = agent.invoke({"messages": task.messages})
    return {"answer": state["messages"][-1].text}
