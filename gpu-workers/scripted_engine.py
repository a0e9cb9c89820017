"""Serves an engine's control routes with scripted faults on a Unix socket.

publish_real_test.py shows that vLLM answers the same way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scripted_transfer import PHASES, Lost, ScriptedTransfer


@dataclass
class ScriptedEngine:
    """`weights` is the folder that was loaded last. The canary's answers come from `logprobs`."""

    path: Path
    logprobs: list[float]
    weights: str = "base"
    weight_version: str = "default"
    paused: bool = False
    control_routes: bool = True
    device: str = "cuda"
    hf_overrides: dict[str, str] = field(default_factory=dict)
    max_model_len: int = 2048
    reloads_that_fail: list[str] = field(default_factory=list)
    reloads_that_do_nothing: list[str] = field(default_factory=list)
    reload_seconds: float = 0.0
    reloads: list[str] = field(default_factory=list)
    weight_versions: list[str] = field(default_factory=list)
    # None: it was started to load weights from disk.
    transfer: ScriptedTransfer | None = None
    # It was killed, and answers nothing.
    dead: bool = False
    # The largest LoRA rank (None: started without LoRA), the folder of each adapter by its name, and their canary.
    max_lora_rank: int | None = None
    adapters: dict[str, str] = field(default_factory=dict)
    adapter_logprobs: list[float] = field(default_factory=list)
    # False: it was started without VLLM_ALLOW_RUNTIME_LORA_UPDATING.
    loads_adapters: bool = True
    adapter_loads: list[str] = field(default_factory=list)
    adapter_loads_that_fail: list[str] = field(default_factory=list)
    # It lists these adapters and answers as its base does.
    dropped_adapters: list[str] = field(default_factory=list)
    pauses: int = 0
    # It gives no answer.
    routes_that_wait: list[str] = field(default_factory=list)
    # It closes the connection in place of an answer.
    routes_that_break: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    async def answer(self, route: str, body: dict) -> tuple[int, dict]:
        if route == "/health":
            return 200, {}
        if route == "/v1/models":
            return 200, {"data": [{"id": "policy", "max_model_len": self.max_model_len}, *self.adapter_cards()]}
        if route.startswith("/v1/") and route.endswith("_lora_adapter"):
            return self.change_adapter(route.removeprefix("/v1"), body) if self.loads_adapters else (404, {})
        if route == "/v1/completions":
            first, *rest = body["prompt"]
            if len(body["prompt"]) + body["max_tokens"] > self.max_model_len:
                return 400, {"error": "the prompt is longer than the model's context"}
            if body["model"] not in ("policy", *self.adapters):
                return 404, {"error": f"the model {body['model']} does not exist"}
            seen = self.answers_of(None if body["model"] == "policy" else body["model"])
            entries = [{str(t): {"logprob": p}} for t, p in zip(rest, seen[: len(rest)], strict=True)]
            return 200, {"choices": [{"prompt_logprobs": [None, *entries]}], "first": first}
        if not self.control_routes:
            return 404, {}
        return await self.control(route, body)

    async def control(self, route: str, body: dict) -> tuple[int, dict]:
        if route == "/collective_rpc":
            return await self.reload(body["kwargs"]["weights_path"])
        if route in PHASES:
            return await self.receive(route, body)
        if route == "/update_weight_version":
            self.weight_version = body["new_version"]
            self.weight_versions.append(self.weight_version)
        elif route in ("/pause", "/resume"):
            self.paused = route == "/pause"
            self.pauses += self.paused
        answers = {
            "/weight_info": {"weight_version": self.weight_version},
            "/get_world_size": {"world_size": 1},
            "/is_paused": {"is_paused": self.paused},
            "/server_info": {"vllm_config": self.config()},
            "/weight_checker": {"checksums": {"tensor": self.weights}},
        }
        return 200, answers.get(route, {})

    def answers_of(self, adapter: str | None) -> list[float]:
        return self.logprobs if adapter in (None, *self.dropped_adapters) else self.adapter_logprobs

    def adapter_cards(self) -> list[dict]:
        return [{"id": name, "root": path, "parent": "policy"} for name, path in self.adapters.items()]

    def change_adapter(self, route: str, body: dict) -> tuple[int, dict]:
        name, path = body.get("lora_name"), body.get("lora_path")
        if self.max_lora_rank is None or not name:
            return 400, {"error": "LoRA is not enabled, or the request names no adapter"}
        if route == "/unload_lora_adapter":
            return (200, {}) if self.adapters.pop(name, None) else (404, {"error": "no such adapter"})
        if name in self.adapters:
            return 400, {"error": f"the lora adapter '{name}' has already been loaded"}
        self.adapter_loads.append(name)
        if name in self.adapter_loads_that_fail:
            return 500, {"error": "error while deserializing header"}
        self.adapters[name] = path
        return 200, {}

    def config(self) -> dict:
        head = {"model_config": {"hf_overrides": self.hf_overrides}}
        if self.transfer:
            head["weight_transfer_config"] = {"backend": self.transfer.backend}
        if self.max_lora_rank is not None:
            head["lora_config"] = {"max_lora_rank": self.max_lora_rank, "max_loras": 4}
        return head | {"parallel_config": {}, "device_config": {"device": self.device}}

    async def reload(self, folder: str) -> tuple[int, dict]:
        self.reloads.append(folder)
        await asyncio.sleep(self.reload_seconds)
        if folder in self.reloads_that_fail:
            self.weights = "torn"
            return 500, {"error": "no such file"}
        if folder not in self.reloads_that_do_nothing:
            self.weights = folder
        return 200, {}

    async def receive(self, route: str, body: dict) -> tuple[int, dict]:
        if self.transfer is None:
            return 500, {"error": "weight transfer is not configured"}
        try:
            status, answer, loaded = await self.transfer.answer(route, body)
        except Lost as lost:
            self.weights = lost.loaded or self.weights
            raise
        self.weights = loaded or self.weights
        return status, answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().split("\r\n")
            route = lines[0].split()[1].split("?")[0]
            length = next((int(x.split(":")[1]) for x in lines if x.lower().startswith("content-length")), 0)
            body = json.loads(await reader.readexactly(length)) if length else {}
            if self.dead or route in self.routes_that_break:
                raise ConnectionResetError
            if route in self.routes_that_wait:
                await reader.read()
                raise ConnectionResetError
            status, reply = await self.answer(route, body)
            payload = json.dumps(reply).encode()
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(payload)}\r\n\r\n".encode() + payload)
            await writer.drain()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ScriptedEngine]:
        async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self.serve(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_unix_server(connection, self.path)
        try:
            yield self
        finally:
            server.close()
