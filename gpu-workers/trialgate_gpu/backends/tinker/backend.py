"""The backend that trains on a server which speaks Tinker's API: SkyRL, Thinking Machines' own service, and others.

A step has a model of its own on the server, which starts from the parent's saved weights. Nothing of a finished step
is only on the server's device: weights and optimizer are saved there under the step's key, and the adapter is in the
checkpoint folder, in the same form as the local trainer's (`lora.py`), so that it is published in the same way.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from transformers import AutoConfig

from ...base import find_model, link_files
from ...batch import read_batch
from ...canary import Canary
from ...checkpoint import SPARE_BYTES, checkpoint_folder, draft_folder
from ...errors import GpuWorkerError, NotFiniteError
from ...lora import Lora, copy_adapter_files, require_same
from ...manifest import ADAPTER, BASE, MANIFEST, Manifest, digest, read_manifest, tensors_digest, weights_digest
from ...measure_canary import canary_token_ids
from ...prepare import PreparedBatch, prepare
from ...progress import Progress
from ...prune import prune
from ...settings import TrainerServer, TrainerSettings, parse_settings
from ...tensor_file import sha256_of
from ...train_step import step_key
from ...version import (
    SKIPPED_METRICS,
    Skip,
    base_manifest,
    base_result,
    find_fork,
    skip,
    step_manifest,
    step_metrics,
    step_result,
)
from ..backend import Json, TrainerBackend
from .adapter import unpack_adapter
from .client import POST_SECONDS, Refused, TinkerClient
from .model import RemoteModel, drop_model, open_session
from .traits import Traits, measure_traits, plain_datum
from .update import UnclippedError, require_servable, train

log = logging.getLogger("trialgate.gpu")


class Saved(NamedTuple):
    """Where the server has a version, and the key of the step whose weights these are."""

    weights: str
    step_key: str


class TinkerBackend(TrainerBackend):
    name = "tinker"

    def place_of(self, request: Json) -> str:
        settings = request.get("trainer", request)
        return str(settings["trainer_server"]["url"])

    async def call(self, name: str, request: Json, progress: Progress) -> Json:
        trainer = TinkerTrainer()
        made = trainer.load_base if name == "loadBase" else trainer.train_step
        return await asyncio.to_thread(made, request, progress)

    async def end(self) -> None:
        """It holds nothing between two steps."""


class TinkerTrainer:
    """Does what `Trainer` does, on a server."""

    def load_base(self, request: Json, progress: Progress) -> Json:
        """Takes what the local backend takes, and `trainer_server`.

        It links the base model's files and saves the first adapter, which changes nothing yet.
        """
        progress.show("find model", model=request["model"])
        server = TrainerServer(**request["trainer_server"])
        lora = _adapter_of(request, server)
        model = Path(request["model"])
        if fork := find_fork(model, request["run_id"], lora):
            _saved_of(fork, model)
            return base_result(model, fork)
        model = find_model(request["model"])
        progress.show("checksum", model=str(model))
        files = {f"{BASE}/{path.name}": sha256_of(path) for path in sorted(model.glob("*.safetensors"))}
        key = digest({"run": request["run_id"], "base": files, "lora": asdict(lora), "trainer_server": server.model})
        folder = checkpoint_folder(Path(request["home"]), key)
        if (folder / MANIFEST).is_file() and (folder / BASE / "config.json").exists():
            return base_result(folder, read_manifest(folder))
        shutil.rmtree(folder, ignore_errors=True)
        name = server.model or request["model"]
        with (
            draft_folder(folder, SPARE_BYTES) as draft,
            TinkerClient(server.url, progress, server.timeout) as client,
        ):
            (draft / BASE).mkdir()
            link_files(model, draft / BASE)
            token_ids = canary_token_ids(draft / BASE, AutoConfig.from_pretrained(model))
            open_session(client, name)
            traits = measure_traits(lambda: RemoteModel.create(client, name, lora.rank, lora.seed), token_ids)
            with attempt(client, Path(request["home"]), key, name, lora) as made:
                canary = _measure_canary(made, token_ids)
                saved = _save(made, key, draft, lora, request["model"])
            files[ADAPTER] = sha256_of(draft / ADAPTER)
            manifest = base_manifest(
                request["run_id"],
                key,
                files,
                _checkpoint_sha256(files, saved),
                canary.to_json(),
                lora=asdict(lora),
                trainer_server=_record(saved, traits),
            )
            manifest.write(draft)
        return base_result(folder, manifest)

    def train_step(self, request: Json, progress: Progress) -> Json:
        started = time.perf_counter()
        home, parent_folder = Path(request["home"]), Path(request["parent_checkpoint"])
        settings = parse_settings(request["trainer"])
        server = settings.trainer_server
        if server is None:
            raise GpuWorkerError("BadSettings", "the run file has no `trainer_server`")
        parent = read_manifest(parent_folder)
        lora = _adapter_of(vars(settings), server)
        require_same(lora, Lora(**parent.lora) if parent.lora else None)
        before = _saved_of(parent, parent_folder)
        key = step_key(parent.checkpoint_sha256, request["batch_sha256"], settings)
        folder = checkpoint_folder(home, key)
        if (folder / MANIFEST).is_file():
            return step_result(folder, read_manifest(folder), reused=True)
        with draft_folder(folder, SPARE_BYTES) as draft:
            copy_adapter_files(parent_folder, draft)
            skipped = Skip()
            saved, metrics, canary = before, {"actor/updates": 0}, Canary.from_json(parent.canary)
            try:
                progress.show("read batch")
                samples = read_batch(Path(request["batch_path"]), request["batch_sha256"], parent.version)
                prepared = prepare(samples, settings, parent.version)
                metrics = prepared.metrics | {"actor/updates": 0}
                if prepared.learned:
                    require_servable(prepared.learned)
                    saved, trained, canary = self._train(
                        server, settings, lora, parent, before, prepared, key, home, draft, progress
                    )
                    metrics |= trained
            except NotFiniteError as error:
                skipped = skip(error, request, settings, parent)
                saved, metrics, canary = before, SKIPPED_METRICS, Canary.from_json(parent.canary)
            if saved == before:
                shutil.copyfile(parent_folder / ADAPTER, draft / ADAPTER)
            files = {file: sha for file, sha in parent.files.items() if file.startswith(f"{BASE}/")}
            files[ADAPTER] = sha256_of(draft / ADAPTER)
            manifest = step_manifest(
                request,
                parent,
                skipped,
                canary,
                step_metrics(metrics, settings, progress, started),
                key=key,
                files=files,
                checkpoint_sha256=_checkpoint_sha256(files, saved),
                weights_sha256=weights_digest(files),
                optimizer_steps=parent.optimizer_steps + int(metrics["actor/updates"]),
                trainer_server=(parent.trainer_server or {}) | saved._asdict(),
            )
            manifest.write(draft)
        kept = [folder, parent_folder, Path(request.get("best_checkpoint") or folder)]
        self._prune(server, home, manifest.run_id, settings, kept)
        return step_result(folder, manifest, reused=False)

    def _train(
        self,
        server: TrainerServer,
        settings: TrainerSettings,
        lora: Lora,
        parent: Manifest,
        before: Saved,
        prepared: PreparedBatch,
        key: str,
        home: Path,
        draft: Path,
        progress: Progress,
    ) -> tuple[Saved, dict[str, float], Canary]:
        """Trains a model from the parent's saved weights, and saves it. Returns where, and what it measured."""
        record = parent.trainer_server or {}
        traits = Traits(record["by_sequence"], record["clips"])
        base_model = json.loads((draft / "adapter_config.json").read_text())["base_model_name_or_path"]
        name = server.model or base_model
        scales: dict[int, float] = {}
        with TinkerClient(server.url, progress, server.timeout) as client:
            open_session(client, name)
            while True:
                with attempt(client, home, key, name, lora) as model:
                    progress.show("load checkpoint", version=parent.version)
                    with progress.timed("load_checkpoint"):
                        model.load(before.weights)
                    try:
                        metrics = train(model, traits, prepared, settings, int(key[:15], 16), scales)
                    except UnclippedError as found:
                        # The step is done again with a gradient that has been clipped on this side.
                        scales[found.number] = settings.optim.clip_grad / (found.norm + 1e-6)
                        continue
                    progress.show("canary")
                    with progress.timed("canary"):
                        canary = _measure_canary(model, parent.canary["token_ids"])
                    progress.show("write checkpoint")
                    with progress.timed("save_checkpoint"):
                        return _save(model, key, draft, lora, base_model), metrics, canary

    def _prune(
        self, server: TrainerServer, home: Path, run_id: str, settings: TrainerSettings, kept: list[Path]
    ) -> None:
        """Deletes old checkpoints of the run, and on the server the weights that no checkpoint names any more."""
        known = _weights_by_folder(home)
        prune(home, run_id, settings.keep_checkpoints, settings.keep_interval, kept)
        left = set(_weights_by_folder(home).values())
        doomed = sorted(set(known.values()) - left)
        if not doomed:
            return
        # The version is finished. A server that cannot delete keeps its files.
        with suppress(GpuWorkerError), TinkerClient(server.url, Progress(), 10.0) as client:
            for weights in doomed:
                _delete(client, weights)


class attempt:
    """Gives a model for one attempt at a step, and takes it away at the end.

    The model's id is on disk meanwhile, so that the attempt after a crash takes away what this one left: the model, and
    what it had saved.
    """

    def __init__(self, client: TinkerClient, home: Path, key: str, name: str, lora: Lora) -> None:
        self._client = client
        self._name, self._saved_as = name, key[:32]
        self._file = home / "trainer-server" / f"{key[:32]}.json"
        self._create: Callable[[], RemoteModel] = lambda: RemoteModel.create(client, name, lora.rank, lora.seed)

    def __enter__(self) -> RemoteModel:
        self._remove_leftovers()
        self._model = self._create()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"model_id": self._model.model_id}))
        return self._model

    def __exit__(self, *_: object) -> None:
        if self._model.unload():
            self._file.unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Raises when the server does not answer."""
        if not self._file.is_file():
            return
        try:
            model_id = json.loads(self._file.read_text())["model_id"]
            # No checkpoint names what it saved: a step whose checkpoint is finished has no further attempt.
            _delete_saved(RemoteModel(self._client, self._name, model_id), self._saved_as)
            submitted = drop_model(self._client, model_id, POST_SECONDS, has_gradient=True)
            self._client.result(submitted, "optim_step")
        except (ValueError, KeyError):
            log.warning("%s is not readable: the model that it named stays until its session ends", self._file)
        except GpuWorkerError as error:
            if error.kind not in ("TrainerServerRefused", "TrainerServerFailed", "TrainerServerForgot"):
                raise
            # It is gone, but its gradients may wait in its place for the next model.
            scratch = self._create()
            drop_model(self._client, scratch.model_id, POST_SECONDS, has_gradient=True)
        self._file.unlink(missing_ok=True)


def _adapter_of(given: dict[str, Any], server: TrainerServer) -> Lora:
    """Raises `BadSettings` for what this API cannot carry."""
    lora = Lora.from_settings(given)
    if lora is None:
        raise GpuWorkerError(
            "BadSettings", f"the trainer server at {server.url} trains adapters: set `lora_rank`, such as 32"
        )
    if lora.target_modules != "all-linear":
        raise GpuWorkerError("BadSettings", "with `trainer_server`, `target_modules` is all-linear: leave it out")
    if given.get("head_dtype", "model") != "model":
        raise GpuWorkerError("BadSettings", "with `trainer_server`, `head_dtype` is model: leave it out")
    if given.get("enable_router_replay"):
        what = "a trainer server replays no experts of an engine"
        raise GpuWorkerError("BadSettings", f"{what}: leave `enable_router_replay` out, or `trainer_server`")
    return lora


def _saved_of(manifest: Manifest, folder: Path) -> Saved:
    record = manifest.trainer_server
    if not record:
        what = f"version {manifest.version} in {folder} was not made by a trainer server"
        how = "leave `trainer_server` out, or export the version and name the folder as the `model` of a new run"
        raise GpuWorkerError("BadSettings", f"{what}: {how}")
    return Saved(record["weights"], record["step_key"])


def _record(saved: Saved, traits: Traits) -> dict[str, Any]:
    return saved._asdict() | asdict(traits)


def _checkpoint_sha256(files: dict[str, str], saved: Saved) -> str:
    """Covers the optimizer's state, which only the server has, by the key of the step that made it."""
    return digest({"files": tensors_digest(files), "step_key": saved.step_key})


def _measure_canary(model: RemoteModel, token_ids: list[int]) -> Canary:
    (logprobs,) = model.logprobs([plain_datum(np.array(token_ids))], "canary")
    if not np.isfinite(logprobs).all():
        raise NotFiniteError("a log-probability of the canary is not finite")
    return Canary(token_ids, [round(float(p), 5) for p in logprobs])


def _save(model: RemoteModel, key: str, draft: Path, lora: Lora, base_model: str) -> Saved:
    """Saves the model on the server under the step's key, and writes its adapter into `draft`."""
    name = key[:32]
    try:
        saved = Saved(model.save(name), key)
        sampler = model.save_for_sampler(name)
        with TemporaryDirectory(dir=draft) as unpacked:
            archive = Path(unpacked) / "adapter.tar.gz"
            _download(model, sampler.rsplit("/", 1)[-1], archive)
            unpack_adapter(archive, draft, lora, base_model)
    except BaseException:
        # No checkpoint names them.
        model.delete("weights", name)
        raise
    finally:
        model.delete("sampler_weights", name)
    return saved


def _delete_saved(model: RemoteModel, name: str) -> None:
    for kind in ("weights", "sampler_weights"):
        model.delete(kind, name)


def _download(model: RemoteModel, name: str, archive: Path) -> None:
    """Servers differ in whether a checkpoint's id in this route has its kind before it."""
    checkpoints = f"/api/v1/training_runs/{model.model_id}/checkpoints"
    try:
        model.client.download(f"{checkpoints}/{name}/archive", archive)
    except Refused as refusal:
        if refusal.status not in (400, 404, 422):
            raise
        model.client.download(f"{checkpoints}/sampler_weights/{name}/archive", archive)


def _delete(client: TinkerClient, path: str) -> None:
    model_id, _, checkpoint = path.removeprefix("tinker://").partition("/")
    client.delete(f"/api/v1/training_runs/{model_id}/checkpoints/{checkpoint}")


def _weights_by_folder(home: Path) -> dict[Path, str]:
    found = {}
    for path in (home / "checkpoints").glob(f"[!.]*/{MANIFEST}"):
        with suppress(GpuWorkerError):
            record = read_manifest(path.parent).trainer_server
            if record:
                found[path.parent] = record["weights"]
    return found
