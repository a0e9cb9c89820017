"""A model on a trainer server: log-probabilities, gradients, updates, and saved weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

import numpy as np

from ...errors import GpuWorkerError
from ...progress import Progress
from ...settings import Optim
from .client import POST_SECONDS, SDK_VERSION, Forgotten, Json, Refused, TinkerClient, protocol_fault
from .messages import Datum, read_output, require_lengths, write_request

# One request's share of a pass, as in the SDK: a server works on one request while the next one arrives.
REQUEST_TOKENS = 65_536
REQUEST_DATA = 256
CANCELLED_SECONDS = 2.0


def requests_of(data: Sequence[Datum]) -> Iterator[Sequence[Datum]]:
    """Cuts `data` into requests, in order."""
    start = tokens = 0
    for end, datum in enumerate(data):
        if end > start and (tokens + len(datum.tokens) > REQUEST_TOKENS or end - start == REQUEST_DATA):
            yield data[start:end]
            start, tokens = end, 0
        tokens += len(datum.tokens)
    yield data[start:]


def open_session(client: TinkerClient, name: str) -> None:
    """Raises `GpuWorkerError` unless the server speaks this API and serves the model `name`."""
    capabilities = client.get("/api/v1/get_server_capabilities")
    served = [str(each.get("model_name")) for each in capabilities.get("supported_models", [])]
    if name not in served:
        what = f"the trainer server at {client.url} serves {', '.join(served) or 'no model'}, not {name}"
        how = "name what it serves as `trainer_server.model`, or start it with the run's model"
        raise GpuWorkerError("BadSettings", f"{what}: {how}")
    session = client.post(
        "/api/v1/create_session",
        {"type": "create_session", "tags": ["trialgate"], "user_metadata": None, "sdk_version": SDK_VERSION},
    )
    if session.get("error_message"):
        what = f"the trainer server at {client.url} refuses a client of level {SDK_VERSION}"
        raise protocol_fault(f"{what}: {session['error_message']}")
    client.session_id = str(session["session_id"])


class RemoteModel:
    """A model that one attempt has for itself. It is unloaded at the end; what was saved stays on the server."""

    def __init__(self, client: TinkerClient, name: str, model_id: str) -> None:
        self.client = client
        self.name = name
        self.model_id = model_id
        self._requests = 0
        self._has_gradient = False

    @classmethod
    def create(cls, client: TinkerClient, name: str, rank: int, seed: int) -> Self:
        """Makes a model with a fresh adapter on the server's model `name`."""
        client.models += 1
        made = client.post(
            "/api/v1/create_model",
            {
                "type": "create_model",
                "session_id": client.session_id,
                "model_seq_id": client.models,
                "base_model": name,
                "lora_config": {
                    "rank": rank,
                    "seed": seed,
                    "train_unembed": False,
                    "train_mlp": True,
                    "train_attn": True,
                },
            },
        )
        result = client.result(made, "create_model")
        model_id = made.get("model_id") or (result.get("model_id") if isinstance(result, dict) else None)
        if not model_id:
            raise protocol_fault(f"the server at {client.url} answered create_model without a model_id")
        return cls(client, name, str(model_id))

    @property
    def progress(self) -> Progress:
        return self.client.progress

    def load(self, path: str) -> None:
        """Loads saved weights and the state of the optimizer."""
        try:
            submitted = self._post("load_weights", {"path": path, "optimizer": True})
        except Refused as refusal:
            if refusal.status != 404:
                raise
            what = f"the trainer server at {self.client.url} no longer has the weights {path} ({refusal.detail})"
            how = "give it back its folder of checkpoints, or fork the run from an exported version"
            raise GpuWorkerError("MissingCheckpoint", f"{what}: {how}") from None
        self.client.result(submitted, "load_weights")

    def logprobs(self, data: Sequence[Datum], phase: str) -> list[np.ndarray]:
        """Returns the log-probability of each datum's `target_tokens`."""
        return self._pass(data, "cross_entropy", phase, forward_only=True)

    def add_gradient(self, data: Sequence[Datum], loss: str, phase: str) -> None:
        self._has_gradient = True
        self._pass(data, loss, phase, forward_only=False)

    def update(self, optim: Optim, learning_rate: float | None = None) -> Json:
        """Makes one AdamW update with the gradients that were added. Returns what the server measured."""
        parameters = {
            "learning_rate": optim.lr if learning_rate is None else learning_rate,
            "beta1": optim.betas[0],
            "beta2": optim.betas[1],
            "eps": optim.eps,
            "weight_decay": optim.weight_decay,
            "grad_clip_norm": optim.clip_grad,
        }
        done = self._do("optim_step", {"adam_params": parameters})
        self._has_gradient = False
        return dict(done.get("metrics") or {})

    def save(self, name: str) -> str:
        """Saves weights and optimizer under `name`. Returns the path by which they are loaded."""
        return self._path_of(self._do("save_weights", {"path": name}), "save_weights")

    def save_for_sampler(self, name: str) -> str:
        return self._path_of(
            self._do("save_weights_for_sampler", {"path": name}, repeat=False), "save_weights_for_sampler"
        )

    def unload(self) -> bool:
        """Drops the model, also of a cancelled step. Returns False when the server does not answer in time."""
        try:
            with self._last_requests() as seconds:
                drop_model(self.client, self.model_id, seconds, has_gradient=self._has_gradient)
        except GpuWorkerError:
            return False
        return True

    def delete(self, kind: str, name: str) -> None:
        """Deletes what was saved under `name`, also of a cancelled step. A server that cannot do it keeps its files."""
        path = f"/api/v1/training_runs/{self.model_id}/checkpoints/{kind}/{name}"
        with suppress(GpuWorkerError), self._last_requests() as seconds:
            self.client.delete(path, repeat=False, seconds=seconds)

    @contextmanager
    def _last_requests(self) -> Iterator[float]:
        """Lets requests be made although the step is cancelled. Yields how many seconds one may take."""
        progress, self.client.progress = self.client.progress, Progress()
        try:
            yield CANCELLED_SECONDS if progress.is_cancelled else POST_SECONDS
        finally:
            self.client.progress = progress

    def _do(self, operation: str, body: Json, *, repeat: bool | None = None) -> Json:
        done = self.client.result(self._post(operation, body, repeat=repeat), operation)
        if not isinstance(done, dict):
            raise protocol_fault(f"the server at {self.client.url} answered {operation} with protobuf in place of JSON")
        return done

    def _post(self, operation: str, body: Json, *, repeat: bool | None = None) -> Json:
        self._requests += 1
        sent = {"model_id": self.model_id, "seq_id": self._requests, "type": operation} | body
        # Only for an update do servers recognize a repetition by its seq_id.
        again = operation == "optim_step" if repeat is None else repeat
        return self._of_model(lambda: self.client.post(f"/api/v1/{operation}", sent, repeat=again))

    def _pass(self, data: Sequence[Datum], loss: str, phase: str, *, forward_only: bool) -> list[np.ndarray]:
        """Sends all requests first, so that the server never waits for this side."""
        what = "forward" if forward_only else "forward_backward"
        pieces = list(requests_of(data))
        submitted = []
        for piece in pieces:
            self._requests += 1
            body = write_request(self.model_id, self._requests, piece, loss, forward_only=forward_only)
            submitted.append(
                self._of_model(lambda body=body: self.client.post_protobuf("/api/v1/forward_backward", body))
            )
        found: list[np.ndarray] = []
        for number, (piece, each) in enumerate(zip(pieces, submitted, strict=True)):
            self.progress.show(phase, request=number + 1, requests=len(pieces))
            found += self._read(self.client.result(each, what), piece, what)
        return found

    def _read(self, result: Json | bytes, data: Sequence[Datum], what: str) -> list[np.ndarray]:
        if isinstance(result, dict):
            raise protocol_fault(
                f"the server at {self.client.url} answered {what} in JSON, so it is older than SDK {SDK_VERSION}"
            )
        try:
            found = read_output(result)
        except ValueError as error:
            raise protocol_fault(f"the answer of {self.client.url} to {what} cannot be read: {error}") from error
        require_lengths(found, data, f"the trainer server at {self.client.url}")
        return found

    def _of_model(self, post: Any) -> Json:
        """Tells a server that has lost this model from one that refuses the request."""
        try:
            return post()
        except Refused as refusal:
            if refusal.status == 404 and "checkpoint" not in refusal.detail.lower():
                what = f"the trainer server at {self.client.url} no longer has model {self.model_id}"
                raise Forgotten(f"{what}: it was started anew or has unloaded it; the step begins again") from None
            if refusal.status in (415, 422):
                what = f"the trainer server at {self.client.url} does not take a request of level {SDK_VERSION}"
                raise protocol_fault(f"{what} ({refusal.status}: {refusal.detail})") from None
            raise

    def _path_of(self, done: Json, operation: str) -> str:
        path = done.get("path")
        if not isinstance(path, str) or not path.startswith("tinker://"):
            raise protocol_fault(f"the server at {self.client.url} answered {operation} without a tinker:// path")
        return path


def drop_model(client: TinkerClient, model_id: str, seconds: float, *, has_gradient: bool) -> Json:
    """Drops a model and the gradients that it has not used. Returns the first request; they are done in order.

    SkyRL's JAX server keeps the gradients of a model that is unloaded and gives them to the next one in its place; an
    update takes them away.
    """
    nothing = {"learning_rate": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1.0, "weight_decay": 0.0}
    requests = [("optim_step", {"adam_params": nothing})] if has_gradient else []
    submitted = [
        client.post(f"/api/v1/{operation}", {"type": operation, "model_id": model_id} | body, seconds=seconds)
        for operation, body in [*requests, ("unload_model", {})]
    ]
    return submitted[0]
