"""smolagents' two agents. Its OpenAI model finds OPENAI_BASE_URL and OPENAI_API_KEY in its environment."""

import sys

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

model = OpenAIModel("policy")


@tool
def ls(path: str) -> str:
    """Lists a folder.

    Args:
        path: The folder.
    """
    return "a.txt"


def minimal(text: str) -> str:
    """Asks the policy, which writes Python that may call the tool."""
    return CodeAgent([ls], model).run(text)


def ask(mode: str, agent) -> None:
    assert agent.run(f"Look into the folder ({mode}).") == "a.txt"


def retry(mode: str) -> None:
    assert minimal(f"Look into the folder ({mode}).") == "a.txt"


MODES = {
    "CodeAgent": lambda mode: ask(mode, CodeAgent([ls], model, verbosity_level=0)),
    "CodeAgent, streamed": lambda mode: ask(mode, CodeAgent([ls], model, verbosity_level=0, stream_outputs=True)),
    "CodeAgent, structured": lambda mode: ask(mode, CodeAgent([ls], model, verbosity_level=0, use_structured_outputs_internally=True)),
    "ToolCallingAgent": lambda mode: ask(mode, ToolCallingAgent([ls], model, verbosity_level=0)),
    "retry": retry,
}
for name in sys.argv[1:]:
    MODES[name](name)
