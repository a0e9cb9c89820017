"""A receiver of OTLP over HTTP that keeps what comes: for the tests.

It prints its port. `GET /` returns the spans in the order in which they came, each attribute with its kind, and the
headers of the last request. `POST /faults` sets how it fails: `status` answers that to each request, `refuse` answers
400 to each request that has a span of this name, `stumble` answers 500 to each that has a span with one of these texts
in an attribute, `partial` takes a request and says that one of its spans is refused, `drip` answers a byte at a time
and never ends.
"""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

spans: list[dict[str, Any]] = []
headers: dict[str, str] = {}
faults: dict[str, Any] = {}


def plain(value: Any) -> list[Any]:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [kind, [plain(each)[1] for each in value.array_value.values]]
    found = getattr(value, kind)
    # JSON has one kind of number: an integer is text here, as it is in OTLP's own JSON.
    return [kind, str(found) if kind == "int_value" else found]


def decoded(body: bytes) -> list[dict[str, Any]]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        {
            "trace": span.trace_id.hex(),
            "span": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "name": span.name,
            "kind": span.kind,
            "start": span.start_time_unix_nano // 1_000_000,
            "end": span.end_time_unix_nano // 1_000_000,
            "attributes": {each.key: plain(each.value) for each in span.attributes},
            "links": [{"trace": link.trace_id.hex(), "span": link.span_id.hex()} for link in span.links],
            "error": span.status.message if span.status.code == 2 else None,
            "resource": {each.key: plain(each.value)[1] for each in of_resource.resource.attributes},
        }
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


class Receiver(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.reply(200, json.dumps({"spans": spans, "headers": headers}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/faults":
            faults.clear()
            faults.update(json.loads(body))
            return self.reply(200, b"")
        headers.clear()
        headers.update({name.lower(): value for name, value in self.headers.items()})
        if self.path.partition("?")[0] != "/v1/traces":
            return self.reply(404, b"")
        if "status" in faults:
            return self.reply(faults["status"], b"as the test says")
        if "drip" in faults:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.2)
            except OSError:
                return None
        come = decoded(body)
        if any(span["name"] == faults.get("refuse") for span in come):
            return self.reply(400, b"as the test says")
        values = {str(value[1]) for span in come for value in span["attributes"].values()}
        if values.intersection(faults.get("stumble", [])):
            return self.reply(500, b"as the test says")
        response = ExportTraceServiceResponse()
        if faults.get("partial"):
            refused = ExportTracePartialSuccess(rejected_spans=1, error_message="one too many")
            response.partial_success.CopyFrom(refused)
        spans.extend(come)
        return self.reply(200, response.SerializeToString())

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
