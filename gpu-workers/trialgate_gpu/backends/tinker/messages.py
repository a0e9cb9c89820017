"""Writes and reads the protobuf bodies of Tinker's API, as its SDK does from version 0.25 on.

The messages are declared here by their field numbers, so that neither the SDK nor generated code is needed. Only the
fields that a step uses are declared; protobuf skips the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ...errors import GpuWorkerError

CONTENT_TYPE = "application/x-protobuf"

_PACKAGE = "tinker_public"
_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "double": _FIELD.TYPE_DOUBLE,
}
# Message: {field: (number, type)}. `[X]` is a repeated field, `{X}` a map from text to X. An enum is an int32 there.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "EncodedTextChunk": {"tokens": (1, "bytes")},
    "Chunk": {"encoded_text": (1, "EncodedTextChunk")},
    "Tensor": {"dense": (1, "bytes"), "dtype": (3, "int32"), "shape": (4, "[int64]")},
    "Datum": {"model_input": (1, "[Chunk]"), "loss_fn_inputs": (2, "{Tensor}")},
    "ForwardBackwardRequest": {
        "model_id": (1, "string"),
        "seq_id": (2, "int32"),
        "data": (3, "[Datum]"),
        "loss_fn": (4, "string"),
        "forward_only": (6, "bool"),
    },
    "BatchedTensor": {"data": (1, "bytes"), "offsets": (2, "bytes"), "dtype": (3, "int32")},
    "ArrayRecord": {"fields": (2, "{BatchedTensor}"), "num_datums": (3, "int64")},
    "ForwardBackwardOutput": {"loss_fn_outputs": (2, "[ArrayRecord]"), "metrics": (3, "{double}")},
}
FLOAT32, INT64, INT32, BFLOAT16 = 1, 2, 3, 4


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if kind[0] in "[{":
        field.label = _FIELD.LABEL_REPEATED
    inner = kind.strip("[]{}")
    if kind.startswith("{"):
        entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, inner)
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"
    elif inner in _KINDS:
        field.type = _KINDS[inner]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{inner}"


def _make_messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="trialgate/tinker.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, field, number, kind)
    # A pool of its own: the process may also have the SDK's messages, which have the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _make_messages()


@dataclass(frozen=True)
class Datum:
    """One sequence: the tokens that go in, and arrays with one entry for each of them, such as `target_tokens`."""

    tokens: np.ndarray
    inputs: dict[str, np.ndarray]


def write_request(model_id: str, seq_id: int, data: Sequence[Datum], loss: str, *, forward_only: bool) -> bytes:
    request = _CLASSES["ForwardBackwardRequest"](
        model_id=model_id, seq_id=seq_id, loss_fn=loss, forward_only=forward_only
    )
    for datum in data:
        message = request.data.add()
        message.model_input.add().encoded_text.tokens = datum.tokens.astype("<i4").tobytes()
        for name, values in datum.inputs.items():
            tensor = message.loss_fn_inputs[name]
            is_whole = np.issubdtype(values.dtype, np.integer)
            tensor.dtype = INT64 if is_whole else FLOAT32
            tensor.dense = values.astype("<i8" if is_whole else "<f4").tobytes()
            tensor.shape.append(len(values))
    return request.SerializeToString()


def read_request(body: bytes) -> tuple[dict[str, Any], bool]:
    """Returns a request as the JSON form of the same API has it, and `forward_only`. The test server reads with it."""
    request = _CLASSES["ForwardBackwardRequest"].FromString(body)
    data = [
        {
            "model_input": {
                "chunks": [
                    {"type": "encoded_text", "tokens": np.frombuffer(chunk.encoded_text.tokens, "<i4").tolist()}
                    for chunk in datum.model_input
                ]
            },
            "loss_fn_inputs": {
                name: {"data": np.frombuffer(t.dense, "<i8" if t.dtype == INT64 else "<f4").tolist()}
                for name, t in datum.loss_fn_inputs.items()
            },
        }
        for datum in request.data
    ]
    inputs = {"data": data, "loss_fn": request.loss_fn}
    return {
        "model_id": request.model_id,
        "seq_id": request.seq_id,
        "forward_backward_input": inputs,
    }, request.forward_only


def write_output(logprobs: Sequence[np.ndarray]) -> bytes:
    """Returns the answer of a server: the field `logprobs` of each datum."""
    output = _CLASSES["ForwardBackwardOutput"]()
    record = output.loss_fn_outputs.add(num_datums=len(logprobs))
    tensor = record.fields["logprobs"]
    tensor.data = b"".join(each.astype("<f4").tobytes() for each in logprobs)
    tensor.offsets = np.cumsum([0, *(4 * len(each) for each in logprobs)]).astype("<i8").tobytes()
    tensor.dtype = FLOAT32
    return output.SerializeToString()


def read_output(body: bytes) -> list[np.ndarray]:
    """Returns the log-probabilities of each datum, float32.

    Raises `ValueError` when the body is no such message or lacks them.
    """
    try:
        output = _CLASSES["ForwardBackwardOutput"].FromString(body)
    except Exception as error:
        raise ValueError(f"the body is not the protobuf message of SDK 0.25 ({error})") from error
    return [each for record in output.loss_fn_outputs for each in _logprobs_of(record)]


def _logprobs_of(record: Any) -> list[np.ndarray]:
    if "logprobs" not in record.fields:
        raise ValueError(f"a result has {', '.join(sorted(record.fields)) or 'no fields'} and no logprobs")
    tensor = record.fields["logprobs"]
    offsets = np.frombuffer(tensor.offsets, "<i8")
    if tensor.dtype == FLOAT32:
        values, size = np.frombuffer(tensor.data, "<f4"), 4
    elif tensor.dtype == BFLOAT16:
        values, size = (np.frombuffer(tensor.data, "<u2").astype("<u4") << 16).view("<f4"), 2
    else:
        raise ValueError(f"log-probabilities have the unknown type {tensor.dtype}")
    return [values[a // size : b // size] for a, b in pairwise(offsets)]


def require_lengths(found: list[np.ndarray], data: Sequence[Datum], who: str) -> None:
    """Raises `GpuWorkerError` unless there is one log-probability for each token that was sent."""
    got, sent = [len(each) for each in found], [len(each.tokens) for each in data]
    if got != sent:
        what = f"{who} answered with log-probabilities for {sum(got)} tokens, but {sum(sent)} were sent"
        raise GpuWorkerError(
            "TrainerServerProtocol", f"{what}: it does not follow Tinker's API; docs/trainers.md lists servers that do"
        )
