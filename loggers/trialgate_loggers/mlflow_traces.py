"""Trials as traces of an mlflow experiment.

The id of a trace is made of the experiment, the run and the trial, so a second write finds the first one. A trace
counts as written when it has its tags, which are written after its spans.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
from mlflow import MlflowClient
from mlflow.entities import AssessmentSource, Feedback, Span, SpanStatusCode, TraceInfo, TraceLocation, TraceState
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.rest_store import RestStore
from mlflow.tracing.client import TracingClient

from trialgate_loggers.logger import Refused, Run, TraceRefused

# The most that mlflow's route gives at once.
TRACES_AT_ONCE = 500
ORIGIN_TAG, ENTRY_TAG, TRIAL_TAG = "trialgate.origin", "trialgate.entry", "trialgate.trial"
TAG_LENGTH = 4000
PREVIEW_LENGTH = 1000
NEEDS = "traces need a server of mlflow 3.4 or newer that answers /version and /v1/traces; `traces: 0` writes none"
# What is wrong with the login, the address or the experiment is so for each trace.
NO_ACCESS = (401, 403, 404)


class Traces:
    def __init__(self, client: MlflowClient, experiment: str, run: Run, run_id: str, timeout: str) -> None:
        self._client = client
        self._tracing = TracingClient(client.tracking_uri)
        self._experiment = experiment
        self._run = run
        self._run_id = run_id
        # Metrics wait while a trace is written, and the program that starts this one tries a trace again.
        self._request = {"MLFLOW_HTTP_REQUEST_TIMEOUT": timeout, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}

    def written(self, entry: str) -> list[str]:
        """Returns the trials of an entry that have a trace."""
        found: list[str] = []
        page = None
        while True:
            with environment(self._request):
                traces = self._client.search_traces(
                    locations=[self._experiment],
                    filter_string=f"tag.`{ORIGIN_TAG}` = '{self._run.origin}' AND tag.`{ENTRY_TAG}` = '{entry}'",
                    max_results=TRACES_AT_ONCE,
                    page_token=page,
                    include_spans=False,
                )
            found.extend(trace.info.tags[TRIAL_TAG] for trace in traces if TRIAL_TAG in trace.info.tags)
            page = traces.token
            if not page:
                return found

    def write(self, entry: str, trial: dict[str, Any]) -> None:
        try:
            with environment(self._request):
                self._write(entry, trial)
        except Exception as error:
            # mlflow also keeps that the server did not tell its version, and then writes no spans any more.
            RestStore._get_server_version.cache_clear()
            if isinstance(error, NotImplementedError):
                raise Refused(f"{error}: {NEEDS}") from error
            if is_of_server(error):
                raise
            raise TraceRefused(f"{type(error).__name__}: {error}") from error

    def _write(self, entry: str, trial: dict[str, Any]) -> None:
        key = hashlib.sha256(f"{self._experiment} {self._run.origin} {trial['id']}".encode()).hexdigest()[:32]
        spans = [span_of(key, index, span) for index, span in enumerate(trial["spans"])]
        root = spans[0]
        self._tracing.log_spans(self._experiment, spans)
        tags = {
            **trial["tags"],
            "mlflow.traceName": root.name,
            "mlflow.trace.spansLocation": "TRACKING_STORE",
            ORIGIN_TAG: self._run.origin,
            ENTRY_TAG: entry,
            TRIAL_TAG: trial["id"],
        }
        source = AssessmentSource(source_type="CODE", source_id="trialgate")
        rewards = [
            feedback(key, index, name, value, source) for index, (name, value) in enumerate(trial["rewards"].items())
        ]
        self._tracing.start_trace(
            TraceInfo(
                trace_id=root.trace_id,
                trace_location=TraceLocation.from_experiment_id(self._experiment),
                request_time=root.start_time_ns // 1_000_000,
                execution_duration=(root.end_time_ns - root.start_time_ns) // 1_000_000,
                state=TraceState.ERROR if root.status.status_code == SpanStatusCode.ERROR else TraceState.OK,
                request_preview=preview(root.inputs),
                response_preview=preview(root.outputs),
                client_request_id=trial["id"],
                trace_metadata={"mlflow.sourceRun": self._run_id, "mlflow.trace_schema.version": "3"},
                tags={name: value[:TAG_LENGTH] for name, value in tags.items()},
                assessments=rewards,
            )
        )


def is_of_server(error: Exception) -> bool:
    """Tells a server that takes no trace now from one that refuses a single trace.

    mlflow knows the status of few answers: one too large (413) looks like a fault of the server. But it raises from an
    error of `requests` if there was no answer, or a status that is worth another try: 408, 429 and 5xx.
    """
    if not isinstance(error, MlflowException):
        return False
    return isinstance(error.__context__, requests.RequestException) or error.get_http_status_code() in NO_ACCESS


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def span_of(key: str, index: int, span: dict[str, Any]) -> Span:
    """Returns a span with its place in the trace as its id. All others are below the first."""
    attributes = {
        **span.get("attributes", {}),
        "mlflow.traceRequestId": f"tr-{key}",
        "mlflow.spanType": span["type"],
    }
    for name, field in (("mlflow.spanInputs", "inputs"), ("mlflow.spanOutputs", "outputs")):
        if span.get(field) is not None:
            attributes[name] = span[field]
    error = span.get("error")
    return Span.from_dict(
        {
            "name": span["name"],
            "trace_id": f"tr-{key}",
            "span_id": span_id(index),
            "parent_span_id": None if index == 0 else span_id(0),
            "start_time_unix_nano": 1_000_000 * span["start"],
            "end_time_unix_nano": 1_000_000 * span["end"],
            "status": {"code": "OK" if error is None else "ERROR", "message": error or ""},
            "attributes": {name: json.dumps(value) for name, value in attributes.items()},
        }
    )


def span_id(index: int) -> str:
    # Zero is no id.
    return f"{index + 1:016x}"


def feedback(key: str, index: int, name: str, value: float, source: AssessmentSource) -> Feedback:
    """Returns a reward as a feedback whose id is the same in a second write."""
    made = Feedback(name=name, value=value, source=source, trace_id=f"tr-{key}")
    made.assessment_id = f"a-{hashlib.sha256(f'{key} {index}'.encode()).hexdigest()[:32]}"
    return made


def preview(value: Any) -> str | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:PREVIEW_LENGTH]
