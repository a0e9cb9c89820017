"""Makes version 0 of a run: links to the base model's files, with checksums and canary.

With LoRA it also has the first adapter, which changes nothing yet.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .base import find_model, link_files
from .canary import Canary
from .checkpoint import SPARE_BYTES, checkpoint_folder, draft_folder, require_complete, write_weights
from .errors import GpuWorkerError, NotFiniteError
from .lora import Lora, write_config
from .manifest import BASE, base_digest, digest, find_manifest, weights_digest
from .measure_canary import canary_token_ids, measure_canary
from .outline import outline
from .policy import Policy, layers_of
from .progress import Progress
from .router_replay import RoutedLayers
from .self_check import check_model
from .tensor_file import sha256_of
from .train_step import Trainer
from .version import base_manifest, base_result, find_fork


def load_base(trainer: Trainer, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Takes {run_id, model, home, head_dtype, lora_rank, …}; returns {checkpoint, checkpoint_sha256, canary, metrics}.

    The weights stay in memory for the first step. A model that already is a checkpoint of the run, as in a fork, is
    version 0 as it is.
    """
    progress.show("find model", model=request["model"])
    lora = Lora.from_settings(request)
    model = Path(request["model"])
    if fork := trainer.world.ask_first(lambda: find_fork(model, request["run_id"], lora)):
        return base_result(model, fork)
    model = find_model(request["model"])
    outlined = outline(model)
    if request.get("enable_router_replay"):
        RoutedLayers.of(layers_of(outlined)).require_mixture()
    progress.show("checksum", model=str(model))
    files = {path.name: sha256_of(path) for path in sorted(model.glob("*.safetensors"))}
    of_lora = {"lora": asdict(lora)} if lora else {}
    of_config = sha256_of(model / "config.json")
    key = digest({"run": request["run_id"], "base": files, "config": of_config} | of_lora)
    folder = checkpoint_folder(Path(request["home"]), key)
    config = folder / (BASE if lora else "") / "config.json"
    if made := trainer.world.ask_first(lambda: find_manifest(folder) if config.exists() else None):
        return base_result(folder, made)
    if trainer.world.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    if lora:
        files = {f"{BASE}/{name}": sha for name, sha in files.items()}
    with draft_folder(folder, SPARE_BYTES, trainer.world) as draft:
        own = draft / BASE if lora else draft
        if trainer.world.rank == 0:
            own.mkdir(exist_ok=True)
            link_files(model, own)
        trainer.world.wait()
        # The adapter, which is part of the checksum, is not drawn yet.
        sha256 = key if lora else base_digest(files, of_config, None)
        manifest = base_manifest(request["run_id"], key, files, sha256, canary={}, **of_lora)
        state = trainer.state_of(draft, manifest, progress)
        state.policy.head_dtype = request.get("head_dtype") or "model"
        require_complete(state.policy, model)
        metrics, canary = measure_base(trainer, state.policy, model, own, {"base": files} | of_lora, progress)
        manifest.metrics.update(metrics)
        manifest.canary.update(canary.to_json())
        if lora:
            if trainer.world.rank == 0:
                write_config(lora, state.policy.model, request["model"], draft, state.policy.place)
            files |= write_weights(state.policy, model, draft, progress.check, trainer.world)
            sha256 = base_digest(files, of_config, of_lora["lora"])
            manifest = replace(manifest, files=files, checkpoint_sha256=sha256, weights_sha256=weights_digest(files))
            trainer.renamed(manifest.checkpoint_sha256)
        if trainer.world.rank == 0:
            manifest.write(draft)
    return base_result(folder, manifest)


def measure_base(
    trainer: Trainer, policy: Policy, model: Path, own: Path, weights: dict[str, Any], progress: Progress
) -> tuple[dict[str, float], Canary]:
    """Checks the model and measures its canary, once for all runs of this process that begin with the same model."""
    token_ids = canary_token_ids(own, policy.whole or policy.model.config)
    configs = [each.to_json_string() for each in (policy.model.config, policy.whole) if each is not None]
    settings = [*configs, policy.head_dtype]
    key = digest({"weights": weights, "settings": settings, "canary": token_ids})
    if key not in trainer.measured:
        progress.show("self-check")
        metrics = check_model(policy, model)
        progress.show("canary")
        try:
            trainer.measured[key] = metrics, measure_canary(policy, token_ids)
        except NotFiniteError as error:
            what = f"model {model} cannot be trained: {error}"
            raise GpuWorkerError("BadModel", f"{what}; are its weights damaged, or too large for bfloat16?") from None
    return trainer.measured[key]
