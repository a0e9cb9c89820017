"""Serves Tinker's API for tests: real LoRA training of a small model in PyTorch, with faults on request.

    python gpu-workers/tinker_server.py MODEL_FOLDER --port 8000 --state FOLDER

Routes, fields and status codes are those of SkyRL 0.4 and of Tinker's SDK 0.25. Weights that were saved are files in
`--state` and survive a restart; models, sessions and gradients do not. By default it counts as Tinker's API says (a
loss is a sum) and clips gradients; `--by-sequence` counts as SkyRL's JAX server does.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import tarfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import save
from transformers import AutoModelForCausalLM

from trialgate_gpu.backends.tinker.messages import CONTENT_TYPE, read_request, write_output

ALPHA = 32.0
Json = dict[str, Any]


class HttpError(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass
class Model:
    """An adapter on the server's model, with AdamW's state and gradients that no update has used."""

    net: torch.nn.Module
    rank: int
    sequences: int = 0
    optimizer: torch.optim.AdamW = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.trained().values(), lr=0.0)

    def trained(self) -> dict[str, torch.nn.Parameter]:
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}


def make_model(folder: str, rank: int, seed: int) -> Model:
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    return Model(inject_adapter_in_model(config, net), rank)


def logprobs_of(net: torch.nn.Module, datum: Json) -> torch.Tensor:
    tokens = [t for chunk in datum["model_input"]["chunks"] for t in chunk["tokens"]]
    targets = torch.tensor(datum["loss_fn_inputs"]["target_tokens"]["data"])
    if len(tokens) != len(targets):
        raise HttpError(400, f"{len(tokens)} tokens with {len(targets)} targets")
    return net(torch.tensor([tokens])).logits[0].log_softmax(-1).gather(1, targets[:, None])[:, 0]


def loss_of(logprobs: torch.Tensor, datum: Json, loss: str, by_sequence: bool) -> torch.Tensor:
    given = {name: torch.tensor(each["data"]) for name, each in datum["loss_fn_inputs"].items()}
    weights = given.get("weights", torch.ones_like(logprobs))
    if loss == "cross_entropy":
        total = -(logprobs * weights).sum()
    elif loss == "importance_sampling":
        total = -((logprobs - given["logprobs"]).exp() * given["advantages"] * (weights != 0)).sum()
    else:
        raise HttpError(400, f"loss {loss} is not supported")
    return total / max(float(weights.sum()), 1e-9) if by_sequence else total


def odd_loss(loss: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
    """Returns what no server is known to compute."""
    return loss / len(logprobs) ** 0.5


class Server:
    """Does one operation at a time, in the order of arrival. `faults` has the options of the command line."""

    def __init__(self, folder: str, state: Path, faults: argparse.Namespace) -> None:
        self.folder, self.state, self.faults = folder, state, faults
        self.models: dict[str, Model] = {}
        self.sessions: set[str] = set()
        self.results: dict[str, Json | bytes | HttpError] = {}
        self.sent: dict[tuple[str, int], str] = {}
        self.operations: dict[str, int] = {}
        self.lock = threading.Lock()
        state.mkdir(parents=True, exist_ok=True)

    def submit(self, operation: str, body: Json, work: Callable[[], Json | bytes]) -> Json:
        """Works at once and keeps the result for `retrieve_future`."""
        repeated = (body.get("model_id", ""), body["seq_id"]) if body.get("seq_id") else None
        if repeated and repeated in self.sent:
            return {"request_id": self.sent[repeated]}
        self.operations[operation] = number = self.operations.get(operation, 0) + 1
        if self.faults.kill == f"{operation}:{number}":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.faults.forget == f"{operation}:{number}":
            self.models.clear()
        request_id = str(len(self.results) + 1)
        try:
            self.results[request_id] = work()
        except HttpError as error:
            self.results[request_id] = error
        if self.faults.silent == f"{operation}:{number}":
            self.results[request_id] = {"type": "try_again", "request_id": request_id, "queue_state": "active"}
        if repeated:
            self.sent[repeated] = request_id
        return {"request_id": request_id, "future_id": request_id, "status": "pending"}

    def model(self, body: Json) -> Model:
        if (found := self.models.get(body["model_id"])) is None:
            raise HttpError(400, f"Model {body['model_id']} not loaded")
        return found

    def handle(self, path: str, body: Json | bytes) -> Json | bytes:
        operation = path.removeprefix("/api/v1/")
        if isinstance(body, bytes):
            request, forward_only = read_request(body)
            self.require_model(request)
            return self.submit(
                "forward" if forward_only else operation, request, lambda: self.passed(request, forward_only)
            )
        match operation:
            case "create_session":
                if self.faults.refuse_sdk:
                    return {"session_id": "", "error_message": self.faults.refuse_sdk}
                session = f"session_{uuid.uuid4().hex[:8]}"
                self.sessions.add(session)
                return {"type": "create_session", "session_id": session}
            case "session_heartbeat":
                return {"type": "session_heartbeat"}
            case "create_model":
                if body["session_id"] not in self.sessions:
                    raise HttpError(404, "Session not found")
                model_id = f"model_{uuid.uuid4().hex[:8]}"
                made = self.submit(operation, {}, lambda: self.created(model_id, body["lora_config"]))
                return made | {"model_id": model_id}
            case "retrieve_future":
                found = self.results.get(body["request_id"])
                if found is None:
                    raise HttpError(404, "Future not found")
                if isinstance(found, HttpError):
                    raise found
                return found
        self.require_model(body)
        work = {
            "optim_step": self.updated,
            "save_weights": lambda b: self.saved(b, "weights"),
            "save_weights_for_sampler": lambda b: self.saved(b, "sampler_weights"),
            "load_weights": self.loaded,
            "unload_model": self.unloaded,
        }.get(operation)
        if work is None:
            raise HttpError(404, "Not Found")
        if operation == "load_weights" and not self.file_of(body["path"]).exists():
            raise HttpError(404, f"Checkpoint not found: {body['path']}")
        return self.submit(operation, body, lambda: work(body))

    def require_model(self, body: Json) -> None:
        if body["model_id"] not in self.models and self.faults.strict:
            raise HttpError(404, "Model not found")

    def file_of(self, path: str) -> Path:
        return self.state / re.sub(r"[^\w.-]", "_", path)

    def created(self, model_id: str, lora: Json) -> Json:
        self.models[model_id] = make_model(self.folder, lora["rank"], lora["seed"])
        return {"model_id": model_id, "type": "create_model"}

    def passed(self, request: Json, forward_only: bool) -> Json | bytes:
        model, inputs = self.model(request), request["forward_backward_input"]
        found = []
        for datum in inputs["data"]:
            with torch.set_grad_enabled(not forward_only):
                logprobs = logprobs_of(model.net, datum)
                if not forward_only:
                    loss = loss_of(logprobs, datum, inputs["loss_fn"], self.faults.by_sequence)
                    (odd_loss(loss, logprobs) if self.faults.odd_loss else loss).backward()
                    model.sequences += 1
            found.append(logprobs.detach().numpy())
        if self.faults.json_only:
            return {"loss_fn_outputs": [{"logprobs": {"data": each.tolist()}} for each in found]}
        return write_output([each[:-1] for each in found] if self.faults.short_answers else found)

    def updated(self, body: Json) -> Json:
        model, given = self.model(body), body["adam_params"]
        parameters = list(model.trained().values())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif self.faults.by_sequence:
                parameter.grad /= max(model.sequences, 1)
        clip = 0.0 if self.faults.no_clip else given.get("grad_clip_norm", 0.0)
        norm = torch.nn.utils.clip_grad_norm_(parameters, clip or float("inf"))
        model.optimizer.param_groups[0] |= {
            "lr": given["learning_rate"],
            "betas": (given["beta1"], given["beta2"]),
            "eps": given["eps"],
            "weight_decay": given["weight_decay"],
        }
        model.optimizer.step()
        model.optimizer.zero_grad()
        model.sequences = 0
        return {"metrics": {"grad_norm": float(norm)}}

    def saved(self, body: Json, kind: str) -> Json:
        model = self.model(body)
        path = f"tinker://{body['model_id']}/{kind}/{body['path']}"
        trained = {name: p.detach().clone() for name, p in model.trained().items()}
        content = io.BytesIO()
        if kind == "weights":
            torch.save({"weights": trained, "optimizer": model.optimizer.state_dict()}, content)
        else:
            named = {f"base_model.model.{n.replace('.default.', '.')}": p for n, p in trained.items()}
            if self.faults.nan_adapter:
                next(iter(named.values())).fill_(float("nan"))
            config = json.dumps({"peft_type": "LORA", "r": model.rank, "lora_alpha": ALPHA, "target_modules": None})
            with tarfile.open(fileobj=content, mode="w:gz") as archive:
                for name, data in (
                    ("adapter_model.safetensors", save(named)),
                    ("adapter_config.json", config.encode()),
                ):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        draft = self.file_of(path + ".part")
        draft.write_bytes(content.getvalue())
        draft.rename(self.file_of(path))
        return {"path": path, "type": f"save_{kind}"}

    def loaded(self, body: Json) -> Json:
        model = self.model(body)
        found = torch.load(self.file_of(body["path"]))
        for name, parameter in model.trained().items():
            parameter.data.copy_(found["weights"][name])
        model.optimizer.load_state_dict(found["optimizer"])
        return {"path": body["path"], "type": "load_weights"}

    def unloaded(self, body: Json) -> Json:
        self.models.pop(body["model_id"], None)
        return {"model_id": body["model_id"], "type": "unload_model"}


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

        def do_GET(self) -> None:
            if archive := re.fullmatch(r"/api/v1/training_runs/([^/]+)/checkpoints/([^/]+)/archive", self.path):
                self.send_response(302)
                self.send_header("location", f"/download/{archive[1]}/{archive[2]}")
                self.send_header("content-length", "0")
                self.end_headers()
            elif download := re.fullmatch(r"/download/([^/]+)/([^/]+)", self.path):
                file = server.file_of(f"tinker://{download[1]}/sampler_weights/{download[2]}")
                self.answer(200, file.read_bytes()[: 100 if server.faults.torn_archive else None])
            elif self.path == "/api/v1/get_server_capabilities":
                self.answer(200, {"supported_models": [{"model_name": server.folder}]})
            elif self.path == "/state":
                self.answer(200, {"models": sorted(server.models), "operations": server.operations})
            else:
                self.answer(404, {"detail": "Not Found"})

        def do_DELETE(self) -> None:
            found = re.fullmatch(r"/api/v1/training_runs/([^/]+)/checkpoints/(\w+)/([^/]+)", self.path)
            if found:
                server.file_of(f"tinker://{found[1]}/{found[2]}/{found[3]}").unlink(missing_ok=True)
            self.answer(204 if found else 404, b"")

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            if server.faults.key and self.headers.get("x-api-key") != server.faults.key:
                return self.answer(401, {"detail": "Invalid API key"})
            is_protobuf = self.headers.get("content-type") == CONTENT_TYPE
            if is_protobuf and server.faults.refuse_protobuf:
                return self.answer(422, {"detail": "Input should be a valid dictionary"})
            with server.lock:
                operation = self.path.rsplit("/", 1)[-1]
                server.operations["posts"] = posts = server.operations.get("posts", 0) + 1
                if server.faults.cut == f"{operation}" and not server.operations.get("cuts"):
                    # The work is done, but the answer is lost.
                    server.operations["cuts"] = posts
                    server.handle(self.path, content if is_protobuf else json.loads(content))
                    self.close_connection = True
                    return self.connection.close()
                try:
                    found = server.handle(self.path, content if is_protobuf else json.loads(content))
                except HttpError as error:
                    return self.answer(error.status, {"detail": error.detail})
            if isinstance(found, dict) and found.get("type") == "try_again":
                time.sleep(0.2)
            return self.answer(200, found)

        def answer(self, status: int, body: Json | bytes) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            kind = CONTENT_TYPE if isinstance(body, bytes) else "application/json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def parse_arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--by-sequence", action="store_true", help="divide by lengths and sequences")
    parser.add_argument("--odd-loss", action="store_true", help="divide by the root of the length")
    parser.add_argument("--no-clip", action="store_true", help="ignore grad_clip_norm")
    parser.add_argument("--key", help="the key that every request must have")
    parser.add_argument("--refuse-sdk", help="the message with which sessions are refused")
    parser.add_argument("--refuse-protobuf", action="store_true")
    parser.add_argument("--json-only", action="store_true", help="answer log-probabilities in JSON")
    parser.add_argument("--short-answers", action="store_true", help="leave the last log-probability out")
    parser.add_argument("--torn-archive", action="store_true")
    parser.add_argument("--nan-adapter", action="store_true", help="hand out an adapter with a weight that is NaN")
    parser.add_argument("--strict", action="store_true", help="answer 404 for a model that is not loaded")
    parser.add_argument("--kill", help="OPERATION:N: die at the Nth operation of this name")
    parser.add_argument("--forget", help="OPERATION:N: forget all models before it")
    parser.add_argument("--silent", help="OPERATION:N: never give its result")
    parser.add_argument("--cut", help="OPERATION: lose the answer to the first one")
    return parser.parse_args(given)


def start(faults: argparse.Namespace) -> tuple[Server, ThreadingHTTPServer]:
    """Returns a server that listens; `serve_forever` makes it answer."""
    server = Server(faults.model, faults.state, faults)
    http = ThreadingHTTPServer(("127.0.0.1", faults.port), handler(server))
    http.daemon_threads = True
    return server, http


def main() -> None:
    faults = parse_arguments()
    torch.set_num_threads(1)
    _, http = start(faults)
    print(f"http://127.0.0.1:{http.server_address[1]}", flush=True)
    http.serve_forever()


if __name__ == "__main__":
    main()
