"""Calls a trainer server over Tinker's HTTP API (`/api/v1`) and waits for its futures.

Every wait ends within a second when the step is cancelled, and sends the session's heartbeats meanwhile. A connection
that breaks is tried again for `RECONNECT_SECONDS` where a repetition cannot do the work twice: reads, and requests
with a `seq_id`, by which a server knows a repetition. Every other failure ends the attempt, and the next one starts
from the parent's saved weights.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from ...errors import GpuWorkerError
from ...progress import Progress
from .keys import key_of
from .messages import CONTENT_TYPE

# The level of the SDK whose requests and answers these are.
SDK_VERSION = "0.25.0"
RECONNECT_SECONDS = 60.0
RETRY_SECONDS = 1.0
CANCEL_SECONDS = 0.5
# The SDK's own values.
SESSION_HEARTBEAT_SECONDS = 10.0
POLL_SECONDS = 45.0
POST_SECONDS = 60.0
DOWNLOAD_SECONDS = 600.0
SUPPORTED = "docs/trainers.md lists the servers that were tried"

Json = dict[str, Any]
T = TypeVar("T")


def unreachable(message: str) -> GpuWorkerError:
    return GpuWorkerError("TrainerServerUnreachable", message, retryable=True)


def protocol_fault(message: str) -> GpuWorkerError:
    return GpuWorkerError("TrainerServerProtocol", f"{message}; {SUPPORTED}")


class Forgotten(GpuWorkerError):
    """Raised when the server no longer has something that it had: it was started anew, or has unloaded it."""

    def __init__(self, message: str) -> None:
        super().__init__("TrainerServerForgot", message, retryable=True)


class Refused(GpuWorkerError):
    """Raised when the server answers a request with 4xx. `detail` is its explanation."""

    def __init__(self, url: str, path: str, status: int, detail: str) -> None:
        what = f"the trainer server at {url} refuses {path} ({status}: {detail})"
        super().__init__("TrainerServerRefused", f"{what}. Repair what it names, then resume the run; {SUPPORTED}")
        self.status, self.detail = status, detail


class TinkerClient:
    """One attempt's connection. `answer_seconds` is the longest wait for the result of one request.

    A server that is away has `reconnect_seconds` to come back.
    """

    def __init__(
        self, url: str, progress: Progress, answer_seconds: float, *, request_seconds: float = POST_SECONDS
    ) -> None:
        self.url = url.rstrip("/")
        self.progress = progress
        self.answer_seconds = answer_seconds
        self.request_seconds = request_seconds
        self.reconnect_seconds = RECONNECT_SECONDS
        self.session_id: str | None = None
        self.models = 0
        self._heartbeat_at = 0.0
        self._runner = asyncio.Runner()
        key = key_of(url)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"X-API-Key": key} if key else {},
            timeout=httpx.Timeout(request_seconds, connect=5.0),
            # A connection that was cut while it was idle would lose the next request.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()

    def get(self, path: str) -> Json:
        return self._wait(self._json("GET", path, repeat=True))

    def post(self, path: str, body: Json, *, repeat: bool = False, seconds: float | None = None) -> Json:
        """Raises `Refused` when the server answers 4xx."""
        return self._wait(
            self._json("POST", path, json=body, repeat=repeat, timeout=httpx.Timeout(seconds or self.request_seconds))
        )

    def post_protobuf(self, path: str, body: bytes) -> Json:
        headers = {"content-type": CONTENT_TYPE}
        return self._wait(self._json("POST", path, content=body, headers=headers, repeat=True))

    def delete(self, path: str, *, repeat: bool = True, seconds: float | None = None) -> None:
        self._wait(self._send("DELETE", path, repeat=repeat, timeout=httpx.Timeout(seconds or self.request_seconds)))

    def result(self, submitted: Json, what: str) -> Json | bytes:
        """Returns the result of a submitted request: protobuf bytes for log-probabilities, JSON for all else."""
        return self._wait(self._retrieve(str(submitted["request_id"]), what))

    def download(self, path: str, target: Path) -> None:
        """Writes an archive to `target`. The route redirects to it, or answers with its URL."""
        self._wait(self._download(path, target))

    # Internals

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(self._watched(work))

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=CANCEL_SECONDS))[0]:
                self.progress.check()
                await self._heartbeat()
            return task.result()
        finally:
            task.cancel()

    async def _heartbeat(self) -> None:
        if self.session_id is None or time.monotonic() - self._heartbeat_at < SESSION_HEARTBEAT_SECONDS:
            return
        self._heartbeat_at = time.monotonic()
        # A failure shows in the request that is waited for.
        body = {"session_id": self.session_id, "type": "session_heartbeat"}
        try:
            await self._http.post("/api/v1/session_heartbeat", json=body, timeout=2.0)
        except httpx.HTTPError:
            return

    async def _send(self, method: str, path: str, *, repeat: bool, **options: Any) -> httpx.Response:
        until = time.monotonic() + (self.reconnect_seconds if repeat else 0)
        while True:
            try:
                response = await self._http.request(method, path, **options)
            except httpx.HTTPError as error:
                fault = f"{type(error).__name__} {error}".strip()
            else:
                if response.status_code < 500 and response.status_code != 429:
                    self._require_accepted(response, path)
                    return response
                fault = f"{response.status_code} {_detail(response)}"
            if time.monotonic() > until:
                what = f"the trainer server at {self.url} does not answer {path} ({fault})"
                raise unreachable(f"{what}: start it, or correct `trainer_server.url`")
            await asyncio.sleep(RETRY_SECONDS)

    def _require_accepted(self, response: httpx.Response, path: str) -> None:
        status = response.status_code
        if status in (401, 403):
            what = f"the trainer server at {self.url} wants a key, or refuses the one it got ({status})"
            how = "name the place of its key in the deployment's setting `trainer_keys` (HOST=VARIABLE or HOST=/path)"
            then = "restart the GPU worker (not needed for a file that only has another key now)"
            raise GpuWorkerError("TrainerServerKey", f"{what}: {how}, {then}, and start or resume the run")
        if status in (404, 405) and _is_missing_route(response):
            what = f"the server at {self.url} has no route {path}"
            raise protocol_fault(f"{what}: it does not speak Tinker's API, or another version of it")
        if status >= 400:
            raise Refused(self.url, path, status, _detail(response))

    async def _json(self, method: str, path: str, *, repeat: bool, **options: Any) -> Json:
        response = await self._send(method, path, repeat=repeat, **options)
        return self._parse(response, path)

    def _parse(self, response: httpx.Response, path: str) -> Json:
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise protocol_fault(f"the server at {self.url} answered {path} with something that is no JSON object")
        return found

    async def _retrieve(self, request_id: str, what: str) -> Json | bytes:
        until = time.monotonic() + self.answer_seconds
        while time.monotonic() < until:
            try:
                response = await self._http.post(
                    "/api/v1/retrieve_future",
                    json={"request_id": request_id},
                    headers={"accept": CONTENT_TYPE},
                    timeout=httpx.Timeout(POLL_SECONDS, connect=5.0),
                )
            except httpx.ReadTimeout:
                continue
            except httpx.HTTPError:
                # Only this route may be broken.
                await asyncio.sleep(RETRY_SECONDS)
                await self._send("GET", "/api/v1/healthz", repeat=True)
                continue
            if response.status_code in (408, 429) or response.status_code > 500:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            result = self._result_of(response, what)
            if not isinstance(result, dict) or result.get("type") != "try_again":
                return result
            await asyncio.sleep(CANCEL_SECONDS)
        waited = f"the trainer server at {self.url} has not finished {what} within {self.answer_seconds:g} s"
        how = "look at its log; if it only needs longer, raise `trainer_server.timeout`"
        raise GpuWorkerError("TrainerServerSilent", f"{waited}: {how}; the step begins again", retryable=True)

    def _result_of(self, response: httpx.Response, what: str) -> Json | bytes:
        status = response.status_code
        if status in (404, 410):
            raise Forgotten(f"the trainer server at {self.url} no longer knows of {what}: the step begins again")
        if status >= 500 or status == 400:
            raise self._failed(what, _detail(response))
        self._require_accepted(response, "/api/v1/retrieve_future")
        if CONTENT_TYPE in response.headers.get("content-type", ""):
            return response.content
        found = self._parse(response, "/api/v1/retrieve_future")
        if "error" in found:
            raise self._failed(what, str(found["error"]))
        return found

    def _failed(self, what: str, detail: str) -> GpuWorkerError:
        message = f"the trainer server at {self.url} could not do {what}: {detail[:500]}"
        return GpuWorkerError("TrainerServerFailed", f"{message}; the step begins again", retryable=True)

    async def _download(self, path: str, target: Path) -> None:
        response = await self._send("GET", path, repeat=True, timeout=httpx.Timeout(DOWNLOAD_SECONDS, connect=5.0))
        location = response.headers.get("location") or str(self._parse(response, path).get("url", ""))
        url = httpx.URL(self.url).join(location)
        # The archive may lie with another host, which must not get the key, or be reached without TLS.
        own = is_same_origin(url, httpx.URL(self.url))
        headers = {"X-API-Key": key} if own and (key := self._http.headers.get("x-api-key")) else {}
        try:
            async with (
                httpx.AsyncClient(follow_redirects=not own, timeout=DOWNLOAD_SECONDS) as http,
                http.stream("GET", url, headers=headers) as stream,
            ):
                stream.raise_for_status()
                with target.open("wb") as file:
                    async for piece in stream.aiter_bytes():
                        file.write(piece)
        except httpx.HTTPError as error:
            # A signed URL is a secret.
            fault = type(error).__name__
            if isinstance(error, httpx.HTTPStatusError):
                fault = str(error.response.status_code)
            what = f"the trainer server's archive at {url.host} cannot be read ({fault})"
            raise unreachable(f"{what}: see that the GPU worker can reach it; the step begins again") from None


def is_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    return (one.scheme, one.netloc) == (other.scheme, other.netloc)


def _detail(response: httpx.Response) -> str:
    try:
        found = response.json()
    except ValueError:
        return response.text[:500]
    return str(found.get("detail", found) if isinstance(found, dict) else found)[:500]


def _is_missing_route(response: httpx.Response) -> bool:
    """Tells a route that is not there from a thing that is not there, by the words of web frameworks."""
    return (
        response.status_code == 405
        or _detail(response) in ("Not Found", "404 page not found", "")
        or ("text/html" in response.headers.get("content-type", ""))
    )
