"""Runs one train step: from a batch and a parent checkpoint to the next checkpoint.

A step has a key, so that a repeated step finds the finished checkpoint (invariant 7).
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import torch

from .attention import has_flex
from .batch import read_batch
from .canary import Canary
from .checkpoint import (
    TrainerState,
    checkpoint_folder,
    copy_side_files,
    draft_folder,
    draft_path,
    load_state,
    state_bytes,
    write_weights,
)
from .errors import GpuWorkerError, NotFiniteError
from .group.placement import Placement
from .group.saved_state import StateWriter
from .group.world import World
from .lora import Lora, require_same
from .manifest import BASE, Manifest, digest, find_manifest, read_manifest, weights_digest
from .measure_canary import measure_canary
from .optimize import optimize
from .performance import forget_peak_memory, peak_memory, peak_tflops
from .prepare import prepare
from .progress import Progress
from .prune import prune, prune_states
from .replay import require_same_weights, steps_since_state
from .router_replay import with_routing
from .settings import TrainerSettings, parse_settings
from .version import SKIPPED_METRICS, Skip, skip, step_manifest, step_metrics, step_result


def step_key(parent_sha256: str, batch_sha256: str, settings: TrainerSettings) -> str:
    return digest({"parent": parent_sha256, "batch": batch_sha256, "trainer": settings.identity()})


class Trainer:
    """Keeps the newest state in memory. Another parent is loaded from disk, with bit-equal results."""

    def __init__(
        self,
        device: torch.device,
        pack_tokens: int,
        world: World = World(),  # noqa: B008
        *,
        dtype: torch.dtype = torch.bfloat16,
        offload: bool = False,
        recompute: bool = False,
        peak: float | None = None,
    ) -> None:
        self.device = device
        # The device's TFLOP/s, None if they are not known.
        self.peak_tflops = peak_tflops(device, peak)
        self.pack_tokens = pack_tokens
        self.world = world
        self.placement = Placement(device, world, dtype, offload=offload, recompute=recompute, pack_tokens=pack_tokens)
        self.writer = StateWriter(world)
        # `load_base` keeps here the self-check's metrics and the canary of each model that a run began with.
        self.measured: dict[str, tuple[dict[str, float], Canary]] = {}
        self._state: TrainerState | None = None
        self._state_sha256: str | None = None

    def state_of(self, folder: Path, manifest: Manifest, progress: Progress) -> TrainerState:
        """Returns the trainer state of this checkpoint: from memory, from disk, or computed again from its batches."""
        if self._state is None or self._state_sha256 != manifest.checkpoint_sha256:
            progress.show("load checkpoint", version=manifest.version)
            self.forget()
            self.settle()
            (first, its_manifest), *steps = self.world.ask_first(lambda: steps_since_state(folder, manifest))
            with progress.timed("load_checkpoint"):
                self._state = load_state(first, its_manifest, self.placement, progress.check)
                self._state_sha256 = its_manifest.checkpoint_sha256
            for each, made in steps:
                self._replay(its_manifest, each, made, progress)
                its_manifest = made
                if each == folder:
                    require_same_weights(self._state, each, made, self.made_by, self.world)
                self._state_sha256 = made.checkpoint_sha256
        return self._state

    def renamed(self, checkpoint_sha256: str) -> None:
        """Notes that the state in memory is now that of this checkpoint."""
        self._state_sha256 = checkpoint_sha256

    @property
    def made_by(self) -> dict[str, Any]:
        """Returns what may change the bits of a step's result, beside its parent, batch and settings."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        threads = torch.get_num_threads() if self.device.type == "cpu" else None
        kernels = {"attention": "flex"} if has_flex(self.device) else {}
        passes = self.placement.pass_dtype
        computed = {} if passes == self.placement.dtype else {"computed_in": str(passes)}
        offloaded = {"offload": True} if self.placement.offload else {}
        kinds = {"device": name, "torch": torch.__version__, "threads": threads, "dtype": str(self.placement.dtype)}
        return kinds | computed | kernels | offloaded | {"ranks": self.world.size, "pack_tokens": self.pack_tokens}

    def _replay(self, parent: Manifest, folder: Path, made: Manifest, progress: Progress) -> None:
        """Does a step again in memory. A step that made no update left the state as it was."""
        if made.metrics["actor/updates"] == 0:
            return
        progress.show("replay", version=made.version)
        with progress.timed("replay"):
            try:
                # A step that an earlier release made has no settings that are new.
                before = {"keep_trainer_state": "newest", "enable_router_replay": False}
                settings = parse_settings(before | made.replay["trainer"])
                # The path in a fork is relative to its folder, which has a link to the batch.
                batch = made.replay | {"batch_path": folder / made.replay["batch_path"]}
                self._update(self._state, batch, settings, parent, made.key, progress)
            except NotFiniteError as error:
                what = f"the step to version {made.version} cannot be done again: {error}"
                raise GpuWorkerError("ReplayDiffers", f"{what}; redo the iteration") from None

    def settle(self) -> None:
        """Waits until the state of the last step is written."""
        self.writer.settle()
        self.world.wait()

    def forget(self) -> None:
        self._state = self._state_sha256 = None
        # A model is part of cycles, and the next one is held to the memory that is free now.
        gc.collect()

    def train_step(self, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Makes version `version` from `parent_checkpoint`.

        `request` has `run_id`, `version`, `parent_checkpoint` (a folder), `batch_path`, `batch_sha256`, `home` (the
        folder of the deployment) and `trainer` (the settings of `settings.py`). It may have `best_checkpoint`, a folder
        that is not pruned. The result has `step_key`, `checkpoint` (a folder), `checkpoint_sha256`, `canary`,
        `metrics`, `skipped` (why the step made no update, or null) and `reused` (true when an earlier try had finished
        the step). `core/gpu-contract.ts` has both as types.

        Raises `GpuWorkerError`, or `Cancelled` with nothing changed.
        """
        started = time.perf_counter()
        forget_peak_memory(self.device)
        home, parent_folder = Path(request["home"]), Path(request["parent_checkpoint"])
        settings = parse_settings(request["trainer"])
        parent = read_manifest(parent_folder)
        require_same(settings.lora, Lora(**parent.lora) if parent.lora else None)
        if parent.trainer_server:
            what = f"version {parent.version} in {parent_folder} was made by a trainer server, which has its moments"
            how = "set `trainer_server` again, or export the version and name the folder as the `model` of a new run"
            raise GpuWorkerError("BadSettings", f"{what}: {how}")
        key = step_key(parent.checkpoint_sha256, request["batch_sha256"], settings)
        folder = checkpoint_folder(home, key)
        if made := self.world.ask_first(lambda: find_manifest(folder)):
            return step_result(folder, made, reused=True)
        state = self.state_of(parent_folder, parent, progress)
        if self.world.rank == 0 and settings.keep_trainer_state == "newest":
            prune_states(home, request["run_id"], parent_folder)
        with draft_folder(folder, state_bytes(state.policy, parent_folder), self.world) as draft:
            try:
                metrics = self._update(state, request, settings, parent, key, progress)
                progress.show("canary")
                with progress.timed("canary"):
                    canary = measure_canary(state.policy, parent.canary["token_ids"])
                skipped = Skip()
            except NotFiniteError as error:
                skipped = skip(error, request, settings, parent)
                metrics, canary = SKIPPED_METRICS, Canary.from_json(parent.canary)
                del state
                state = self.state_of(parent_folder, parent, progress)
            progress.show("write checkpoint")
            with progress.timed("save_checkpoint"):
                if self.world.rank == 0:
                    copy_side_files(parent_folder, draft)
                files = write_weights(state.policy, parent_folder, draft, progress.check, self.world)
                files |= {file: sha for file, sha in parent.files.items() if file.startswith(f"{BASE}/")}
            weights_sha256 = weights_digest(files)
            checkpoint_sha256 = digest({"weights": weights_sha256, "step": key})
            if metrics["actor/updates"] == 0:
                # The base model's file may have the same tensors in another order, with another checksum.
                weights_sha256 = parent.weights_sha256
            since_state = (parent.since_state + 1) % settings.save_optimizer_every
            metrics = metrics | self._highest_memory()
            manifest = step_manifest(
                request,
                parent,
                skipped,
                canary,
                step_metrics(metrics, settings, progress, started),
                key=key,
                files=files,
                checkpoint_sha256=checkpoint_sha256,
                weights_sha256=weights_sha256,
                optimizer_steps=state.optimizer.steps,
                replay=_replayable(request, parent_folder),
                since_state=since_state,
                made_by=self.made_by,
            )
            if self.world.rank == 0:
                manifest.write(draft)
        self.renamed(checkpoint_sha256)
        if since_state == 0:
            with progress.timed("copy_state"):
                self.writer.begin(state.policy, state.optimizer, folder, checkpoint_sha256, draft_path(folder))
        kept = [folder, parent_folder, Path(request.get("best_checkpoint") or folder)]
        if self.world.rank == 0:
            prune(home, manifest.run_id, settings.keep_checkpoints, settings.keep_interval, kept)
        return step_result(folder, manifest, reused=False)

    def _highest_memory(self) -> dict[str, float]:
        """Returns the largest peak of a rank in this step."""
        peaks = self.world.gather(peak_memory(self.device))
        return {name: max(peak[name] for peak in peaks) for name in peaks[0]}

    def _update(
        self,
        state: TrainerState,
        batch: dict[str, Any],
        settings: TrainerSettings,
        parent: Manifest,
        key: str,
        progress: Progress,
    ) -> dict[str, float]:
        """Trains `state` on the batch (`batch_path`, `batch_sha256`) and returns the step's metrics.

        Raises `NotFiniteError` when a number is not finite; `state` must then be loaded again.
        """
        progress.show("read batch")
        with progress.timed("load_batch"):
            path, replays = Path(batch["batch_path"]), settings.enable_router_replay
            samples = read_batch(path, batch["batch_sha256"], parent.version, with_experts=replays)
            prepared = prepare(samples, settings, parent.version)
            # What is read of the experts is large, and nothing else may hold it.
            del samples
            if replays:
                prepared = with_routing(prepared, state.policy.routers.found.require_mixture())
            longest = max((len(each.inputs) for each in prepared.learned), default=0)
            self.placement.require_sequence(state.policy, longest)
        self._state_sha256 = None
        seed = int(key[:15], 16)
        state.policy.head_dtype = settings.head_dtype
        metrics = optimize(state, prepared, settings, self.pack_tokens, seed, progress, self.world)
        if self.peak_tflops and "perf/model_tflops_per_rank" in metrics:
            metrics["perf/mfu/actor"] = metrics["perf/model_tflops_per_rank"] / self.peak_tflops
        return prepared.metrics | metrics | {"perf/compute_bits": 8 * self.placement.pass_dtype.itemsize}


def _replayable(request: dict[str, Any], parent: Path) -> dict[str, Any]:
    """Returns what computes a step again."""
    kept = {name: request[name] for name in ("batch_path", "batch_sha256", "trainer")}
    return kept | {"parent": parent.name}
