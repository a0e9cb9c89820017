"""Makes version 0 of a run: links to the base model's files, with checksums and canary."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from .base import find_model, link_files
from .canary import canary_token_ids, measure_canary
from .checkpoint import SPARE_BYTES, checkpoint_folder, draft_folder, require_complete
from .errors import GpuWorkerError, NotFiniteError
from .manifest import MANIFEST, Manifest, digest, read_manifest, state_digests
from .progress import Progress
from .self_check import check_model
from .supported import require_supported
from .tensor_file import sha256_of
from .train_step import Trainer


def load_base(trainer: Trainer, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Takes {run_id, model, home, head_dtype}; returns {checkpoint, checkpoint_sha256, canary, metrics}.

    The weights stay in memory for the first step. A model that already is a checkpoint of the run, as in a fork, is
    version 0 as it is.
    """
    progress.show("find model", model=request["model"])
    model = find_model(request["model"])
    if (model / MANIFEST).is_file() and (fork := read_manifest(model)).run_id == request["run_id"]:
        return _result(model, fork)
    require_supported(AutoConfig.from_pretrained(model), model)
    progress.show("checksum", model=str(model))
    files = {path.name: sha256_of(path) for path in sorted(model.glob("*.safetensors"))}
    key = digest({"run": request["run_id"], "base": files})
    folder = checkpoint_folder(Path(request["home"]), key)
    if (folder / MANIFEST).is_file() and (folder / "config.json").exists():
        return _result(folder, read_manifest(folder))
    shutil.rmtree(folder, ignore_errors=True)
    checkpoint_sha256, weights_sha256 = state_digests(files)
    with draft_folder(folder, SPARE_BYTES) as draft:
        link_files(model, draft)
        manifest = Manifest(
            run_id=request["run_id"],
            version=0,
            key=key,
            parent=None,
            batch_sha256=None,
            files=files,
            checkpoint_sha256=checkpoint_sha256,
            weights_sha256=weights_sha256,
            optimizer_steps=0,
            metrics={},
            canary={},
        )
        state = trainer.state_of(draft, manifest, progress)
        state.policy.head_dtype = request.get("head_dtype") or "model"
        progress.show("self-check")
        require_complete(state.policy, model)
        manifest.metrics.update(check_model(state.policy, model))
        progress.show("canary")
        try:
            canary = measure_canary(state.policy, canary_token_ids(draft, state.policy.model.config))
        except NotFiniteError as error:
            what = f"model {model} cannot be trained: {error}"
            raise GpuWorkerError("BadModel", f"{what}; are its weights damaged, or too large for bfloat16?") from None
        manifest.canary.update(canary.to_json())
        manifest.write(draft)
    return _result(folder, manifest)


def _result(folder: Path, manifest: Manifest) -> dict[str, Any]:
    return {
        "checkpoint": str(folder),
        "checkpoint_sha256": manifest.checkpoint_sha256,
        "canary": manifest.canary,
        "metrics": manifest.metrics,
    }
