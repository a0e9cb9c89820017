"""Asks for a chat completion over plain HTTP. The bundled agents know no more of a model."""

from __future__ import annotations

import json
import os
import sys
import time

BASE_URL = os.environ["OPENAI_BASE_URL"]
if BASE_URL.startswith("http://"):
    sys.modules["ssl"] = None  # type: ignore[assignment]  # spares a third of the start-up: 64 agents share few cores

import http.client
import urllib.parse

TRIES = 3
MAX_TOKENS = 128

Message = dict[str, str]


class Exhausted(Exception):
    """Raised when a budget or the context window is used up, so that the files written so far are the answer."""


def ask(messages: list[Message], max_tokens: int | None = MAX_TOKENS) -> str:
    """Returns the reply's text, of at most `max_tokens`, or as many as the run allows.

    Ends the process when the gateway keeps failing or refuses the request for good.
    """
    failure = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(0.2 * 4**attempt)
        try:
            status, body = _post(messages, max_tokens, attempt)
        except (OSError, http.client.HTTPException) as error:
            failure = f"{type(error).__name__}: {error}"
            continue
        if status == 200:
            return _text(body)
        failure = f"{status}: {body[:500].decode('utf-8', 'replace')}"
        if b"budget_exhausted" in body or (status == 400 and b"context" in body):
            raise Exhausted(failure)
        if status < 500 and status != 429:
            sys.exit(f"the gateway refused: {failure}")
    sys.exit(f"the gateway failed {TRIES} times: {failure}")


def _text(body: bytes) -> str:
    try:
        return json.loads(body)["choices"][0]["message"]["content"] or ""
    except (ValueError, KeyError, IndexError, TypeError):
        sys.exit(f"the gateway's answer is not a chat completion: {body[:300]!r}")


def _post(messages: list[Message], max_tokens: int | None, attempt: int) -> tuple[int, bytes]:
    url = urllib.parse.urlsplit(BASE_URL)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port)
    headers = {
        "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        "content-type": "application/json",
        "x-stainless-retry-count": str(attempt),
    }
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    body = json.dumps({"model": "policy", "messages": messages, "temperature": 1, **limit})
    try:
        connection.request("POST", f"{url.path}/chat/completions", body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
