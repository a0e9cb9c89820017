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

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    async def answer(self, route: str, body: dict) -> tuple[int, dict]:
        if route == "/health":
            return 200, {}
        if route == "/v1/models":
            return 200, {"data": [{"id": "policy", "max_model_len": self.max_model_len}]}
        if route == "/v1/completions":
            first, *rest = body["prompt"]
            if len(body["prompt"]) + body["max_tokens"] > self.max_model_len:
                return 400, {"error": "the prompt is longer than the model's context"}
            entries = [{str(t): {"logprob": p}} for t, p in zip(rest, self.logprobs[: len(rest)], strict=True)]
            return 200, {"choices": [{"prompt_logprobs": [None, *entries]}], "first": first}
        if not self.control_routes:
            return 404, {}
        return await self.control(route, body)

    async def control(self, route: str, body: dict) -> tuple[int, dict]:
        if route == "/collective_rpc":
            return await self.reload(body["kwargs"]["weights_path"])
        if route == "/update_weight_version":
            self.weight_version = body["new_version"]
            self.weight_versions.append(self.weight_version)
        elif route in ("/pause", "/resume"):
            self.paused = route == "/pause"
        answers = {
            "/weight_info": {"weight_version": self.weight_version},
            "/is_paused": {"is_paused": self.paused},
            "/server_info": {"vllm_config": self.config()},
            "/weight_checker": {"checksums": {"tensor": self.weights}},
        }
        return 200, answers.get(route, {})

    def config(self) -> dict:
        head = {"model_config": {"hf_overrides": self.hf_overrides}}
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

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().split("\r\n")
            route = lines[0].split()[1].split("?")[0]
            length = next((int(x.split(":")[1]) for x in lines if x.lower().startswith("content-length")), 0)
            body = json.loads(await reader.readexactly(length)) if length else {}
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
