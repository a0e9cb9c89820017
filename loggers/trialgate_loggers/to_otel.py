"""A run as spans, which go to a receiver of OTLP over HTTP.

No receiver tells what it has. So a file beside the other loggers notes each part of a run (a group with its trials, a
train step, ...) of which the receiver has answered for all spans.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from trialgate_loggers.logger import Entry, Id, Refused, Run, Unavailable

# Its messages have whole addresses, which may have keys. The reasons below have none.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
logging.getLogger("urllib3").setLevel(logging.CRITICAL)

# All other numbers are doubles: JavaScript writes the double 1.0 as `1`, and an attribute has one type in all spans.
INTEGERS = {
    "gen_ai.request.choice.count",
    "gen_ai.request.max_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "http.response.status_code",
    "rl.loop.iteration",
    "rl.sample.batch_size",
    "rl.train.batch_size",
    "trialgate.attempt",
    "trialgate.calls",
    "trialgate.calls_left_out",
    "trialgate.policy_version",
    "trialgate.replicas",
    "trialgate.take",
    "trialgate.trained_version",
    "trialgate.trial_index",
    "trialgate.trials",
}
SCOPE = InstrumentationScope("trialgate")
SPANS_AT_ONCE = 512
# Only these refuse the spans of a request. All others tell of the address, the login, a quota or the load, which a user
# can mend: the spans are kept.
OF_SPANS = (400, 413, 422)
LONGEST_SAID = 200
MOST_READ = 65536
NOT_ENCODED = "cannot be encoded"


class Answers(requests.Session):
    """Keeps the last answer and the beginning of its body, because the exporter tells only that it failed."""

    answer: requests.Response | None = None
    body = b""
    error: Exception | None = None

    def forget(self) -> None:
        self.answer, self.body, self.error = None, b"", None

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        self.forget()
        try:
            with within(kwargs.get("timeout")):
                answer = super().request(*args, **{**kwargs, "stream": True})
                with answer:
                    for piece in answer.iter_content(MOST_READ):
                        self.body += piece
                        if len(self.body) >= MOST_READ:
                            break
                self.answer = answer
        except Exception as error:
            self.error = error
            raise
        return answer


class TooSlow(Exception):
    """No whole answer came within the time limit. An `OSError` would be wrapped by the library."""


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Ends what takes longer. The time limit of `requests` is for each read: a slow answer could last for ever."""

    def end(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, end)
    # Zero would set no limit.
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001) if seconds is not None else 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Logger:
    def __init__(self, run: Run, settings: dict[str, Any]) -> None:
        endpoint = settings.get("endpoint")
        if not endpoint:
            raise Refused("otel needs the address of a receiver: set `endpoint`, or OTEL_EXPORTER_OTLP_ENDPOINT")
        self._address = shown(endpoint)
        self._answers = Answers()
        self._exporter = OTLPSpanExporter(endpoint=endpoint, session=self._answers)
        self._resource = resource_of(run)
        # Of the whole address, like the lock of the log: a query may name another tenant.
        place = hashlib.sha256(endpoint.encode()).hexdigest()[:12]
        self._sent = Sent(Path(settings["folder"]) / f"{run.origin}.{place}.sent")
        self._part = ""
        self._rejected: tuple[int, str] = (0, "")

    def written(self) -> set[Id]:
        return set()

    def write(self, entries: list[Entry]) -> None:
        """Spans have what entries have."""

    def sent(self) -> list[str]:
        return sorted(self._sent.parts)

    def send(self, part: str, spans: list[dict[str, Any]], is_last: bool) -> dict[str, Any]:
        """Sends spans of a part. Returns how many the receiver refused for good, and why, with the last of the part."""
        if part in self._sent.parts:
            return {}
        if part != self._part:
            self._part, self._rejected = part, (0, "")
        self._sent.reserve(part)
        made = []
        for span in spans:
            try:
                made.append(span_of(span, self._resource))
            except Exception:
                self._note(1, NOT_ENCODED)
        for at in range(0, len(made), SPANS_AT_ONCE):
            self._export(made[at : at + SPANS_AT_ONCE])
        if not is_last:
            return {}
        self._sent.add(part)
        (rejected, reason), self._rejected = self._rejected, (0, "")
        return {"rejected": rejected, "reason": reason} if rejected > 0 else {}

    def _export(self, spans: list[ReadableSpan]) -> None:
        """Sends spans. What is refused is halved, so that the receiver lacks only the spans that it does not take."""
        self._answers.forget()
        self._exporter.export(spans)
        answer, error = self._answers.answer, self._answers.error
        if error is not None:
            raise Unavailable(f"no answer of the receiver {self._address}: {type(error).__name__}")
        if answer is None:
            # Nothing was asked: a request that cannot be encoded is a fault of its spans.
            self._refuse(spans, NOT_ENCODED)
            return
        # The exporter takes a redirect for a success, and does not follow it.
        if 200 <= answer.status_code < 300:
            partial = partial_success(self._answers.body)
            if partial is not None:
                self._note(partial.rejected_spans, f"{self._address} took a part: {said(partial.error_message)}")
            return
        reason = f"{answer.status_code}{in_words(self._answers.body)}"
        if answer.status_code not in OF_SPANS:
            raise Unavailable(f"the receiver {self._address} answered {reason}")
        self._refuse(spans, f"{self._address} answered {reason}")

    def _refuse(self, spans: list[ReadableSpan], reason: str) -> None:
        if len(spans) == 1:
            self._note(1, reason)
            return
        half = len(spans) // 2
        self._export(spans[:half])
        self._export(spans[half:])

    def _note(self, count: int, reason: str) -> None:
        if count > 0:
            self._rejected = (self._rejected[0] + count, reason)

    def close(self, status: str, at: float) -> None:
        self._exporter.shutdown()


class Sent:
    """The parts that were sent, a line each. A line that a full disk cut does not count."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        data = file.read_bytes() if file.exists() else b""
        self._size = data.rfind(b"\n") + 1
        lines = data[: self._size].decode(errors="replace").splitlines()
        self.parts = {line for line in lines if line.strip()}
        self._reserved: str | None = None

    def reserve(self, part: str) -> None:
        """Takes the room of a line, so that a full disk fails before spans are sent, and not after."""
        if part == self._reserved:
            return
        self._reserved = None
        self._write(b" " * len(part.encode()))
        self._reserved = part

    def add(self, part: str) -> None:
        # It was sent, also if that cannot be noted.
        self.parts.add(part)
        self._reserved = None
        line = part.encode()
        self._write(line)
        self._size += len(line) + 1

    def _write(self, line: bytes) -> None:
        """Writes the last line, in the place of one that was cut or not needed."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.seek(self._size)
            file.write(line + b"\n")
            file.truncate()
            file.flush()
            os.fsync(file.fileno())


def resource_of(run: Run) -> Resource:
    """Returns what all spans are of. The user's own OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    own = {
        "service.name": "trialgate",
        "rl.system": "trialgate",
        "rl.run.id": run.group,
        "rl.model.name": str(run.config.get("model", "")),
        "rl.algorithm": str(run.config.get("objective", "")),
    }
    given = {name: value for name, value in own.items() if value}
    return Resource.create(given).merge(OTELResourceDetector().detect())


def span_of(span: dict[str, Any], resource: Resource) -> ReadableSpan:
    error = span.get("error")
    return ReadableSpan(
        name=span["name"],
        context=context_of(span["trace"], span["span"]),
        parent=context_of(span["trace"], span["parent"]) if span.get("parent") else None,
        resource=resource,
        attributes={name: typed(name, value) for name, value in span["attributes"].items() if value is not None},
        links=[Link(context_of(link["trace"], link["span"], is_remote=True)) for link in span.get("links", [])],
        kind=SpanKind.CLIENT if span.get("kind") == "client" else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, error) if error is not None else Status(StatusCode.UNSET),
        start_time=nanoseconds(span["start"]),
        end_time=nanoseconds(max(span["start"], span["end"])),
        instrumentation_scope=SCOPE,
    )


def context_of(trace: str, span: str, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote, TraceFlags(TraceFlags.SAMPLED))


def typed(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int(value) if name in INTEGERS else float(value)


def nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1000) * 1000


def partial_success(content: bytes) -> Any:
    """Returns the part of an answer that tells of refused spans. An answer that is no protobuf tells of none."""
    try:
        response = ExportTraceServiceResponse.FromString(content)
    except Exception:
        return None
    return response.partial_success if response.HasField("partial_success") else None


def shown(url: str) -> str:
    """Returns an address for people: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def in_words(body: bytes) -> str:
    words = said(body[: 10 * LONGEST_SAID].decode(errors="ignore"))
    return f": {words}" if words else ""


def said(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text).strip()[:LONGEST_SAID]
