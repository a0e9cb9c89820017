"""Runs the worker client of verl-recipe PR 83 as it is, from a fetched copy, with vLLM behind it.

    python serve.py COPY GATEWAY_WS MODEL VLLM_SOCKET

COPY is the folder that contains `proxyserver/worker_client.py`. What is ours: the handle through which the client asks
vLLM (verl gives it an actor of Ray), the names that the copy imports from Ray and LiteLLM and does not use here, and a
tokenizer whose chat template returns ids, as that of transformers 4 did.
"""

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import transformers


class VllmHandle:
    """Has the one method of verl's rollout server that the client calls: `generate.remote`."""

    def __init__(self, socket: str) -> None:
        self.client = httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://vllm", timeout=300)
        self.model = self.client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        self.generate = SimpleNamespace(remote=self._generate)

    def _generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str) -> Any:
        """Returns what `ray.get` is asked for: a function that waits for the reply."""
        body = {**sampling_params, "model": self.model, "prompt": prompt_ids, "logprobs": 1, "return_token_ids": True}

        def reply() -> SimpleNamespace:
            answer = self.client.post("/v1/completions", json=body, headers={"x-request-id": request_id})
            choice = answer.raise_for_status().json()["choices"][0]
            return SimpleNamespace(
                token_ids=choice["token_ids"],
                log_probs=choice["logprobs"]["token_logprobs"],
                stop_reason=choice["finish_reason"],
            )

        return reply


def stand_in(name: str, **names: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module


def idle(*names: str) -> dict[str, type]:
    return {name: type(name, (), {}) for name in names}


async def main(copy: str, gateway: str, model: str, socket: str) -> None:
    stand_in("ray", get=lambda reply: reply())
    stand_in("litellm")
    stand_in("litellm.llms")
    stand_in("litellm.llms.custom_httpx")
    stand_in("litellm.llms.custom_httpx.http_handler", **idle("AsyncHTTPHandler", "HTTPHandler"))
    stand_in("litellm.llms.custom_llm", **idle("CustomLLM"), CustomLLMError=RuntimeError)
    kinds = ("ChatCompletionTokenLogprob", "ChoiceLogprobs", "Choices", "GenericStreamingChunk", "Message", "Usage")
    stand_in("litellm.types")
    stand_in("litellm.types.utils", **idle(*kinds))
    stand_in("litellm.utils", **idle("ModelResponse"))
    sys.path.insert(0, copy)
    package = ModuleType("proxyserver")
    package.__path__ = [f"{copy}/proxyserver"]
    sys.modules["proxyserver"] = package
    from proxyserver.worker_client import InferenceWorkerClient

    load = transformers.AutoTokenizer.from_pretrained

    def with_ids(*args: Any, **kwargs: Any) -> Any:
        tokenizer = load(*args, **kwargs)
        template = tokenizer.apply_chat_template
        tokenizer.apply_chat_template = lambda *a, **k: template(*a, **{**k, "return_dict": False})
        return tokenizer

    transformers.AutoTokenizer.from_pretrained = with_ids
    client = InferenceWorkerClient(gateway, [VllmHandle(socket)], model, tool_format=None, worker_id="verl")
    await client.start()
    print("worker started", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
