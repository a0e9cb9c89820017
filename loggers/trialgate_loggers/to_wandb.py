"""A run of Weights & Biases, online or offline. Offline, `wandb sync` uploads the folders below `folder` later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wandb
from wandb.apis.public.runs import RunNotFoundError
from wandb.proto.wandb_internal_pb2 import Record

from trialgate_loggers.logger import EVALUATION, STEP, TRAINING, Entry, Id, Run, id_of, ids_of, marked

BLOCK = 32768
"""The layout of wandb's own log (`run-ID.wandb`), LevelDB's: blocks of records, each with checksum, length and type."""
FULL, FIRST, LAST = 1, 2, 4
FINISH_SECONDS = 60


class Logger:
    def __init__(self, run: Run, settings: dict[str, Any]) -> None:
        self._folder = Path(settings["folder"])
        self._folder.mkdir(parents=True, exist_ok=True)
        self._mode = settings.get("mode") or os.environ.get("WANDB_MODE") or "online"
        self._key = run.key
        self._sent: set[Id] = set()
        self._before = self._kept() if self._mode == "offline" else None
        # The server's own steps only count up. So the steps of training are a metric, over which all others are drawn.
        self._wandb = wandb.init(
            project=settings["project"],
            entity=settings.get("entity"),
            id=run.key,
            name=run.name,
            group=run.group,
            dir=self._folder,
            config={**run.config, **run.tags},
            mode=self._mode,
            resume="allow",
            settings=wandb.Settings(
                console="off",
                x_disable_stats=True,
                disable_git=True,
                save_code=False,
                silent=True,
                # Without this limit, the end of a run would wait forever for a server that does not answer.
                finish_timeout=FINISH_SECONDS,
                finish_timeout_raises=True,
            ),
        )
        self._wandb.define_metric(STEP)
        self._wandb.define_metric("*", step_metric=STEP)

    def written(self) -> set[Id]:
        return self._uploaded() if self._before is None else self._before

    def _kept(self) -> set[Id]:
        """Returns what the folder has. Each start of an offline run makes another folder of the same run."""
        files = sorted(self._folder.glob(f"wandb/*run-*-{self._key}/run-{self._key}.wandb"))
        return ids_of([(int(row.get(STEP, 0)), row) for file in files for row in history(file)])

    def _uploaded(self) -> set[Id]:
        """Returns what the server has."""
        try:
            run = wandb.Api().run(f"{self._wandb.entity}/{self._wandb.project}/{self._wandb.id}")
        except RunNotFoundError:
            return set()
        found = (
            id_of(name, int(row[STEP]), row[name])
            for name in (TRAINING, EVALUATION)
            for row in run.scan_history(keys=[STEP, name])
        )
        return {each for each in found if each is not None}

    def write(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._wandb.log({**marked(entry), STEP: entry.id.step})
        self._sent |= {entry.id for entry in entries}

    def close(self, status: str, at: float) -> None:
        self._wandb.finish(exit_code=1 if status == "failed" else 0)
        if self._mode == "offline" and not self._sent <= self._kept():
            raise OSError(f"wandb did not keep all metrics in {self._folder}: is the disk full?")


def history(file: Path) -> Iterator[dict[str, float]]:
    """Yields the rows of a run's log, up to the record at which a killed process stopped."""
    for data in records(file.read_bytes()):
        record = Record.FromString(data)
        if record.HasField("history"):
            yield {
                item.key or "/".join(item.nested_key): number
                for item in record.history.item
                if (number := number_in(item.value_json)) is not None
            }


def started_as(file: Path) -> str | None:
    """Returns the name of a log's run. A log whose process was killed may not have it."""
    starts = (Record.FromString(data) for data in records(file.read_bytes()))
    return next((record.run.display_name for record in starts if record.HasField("run")), None)


def number_in(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def records(data: bytes) -> Iterator[bytes]:
    # The file begins with seven bytes that are no record.
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        at += 7
        if kind == 0 or at + length > len(data):
            return
        parts = (b"" if kind in (FULL, FIRST) else parts) + data[at : at + length]
        at += length
        if kind in (FULL, LAST):
            yield parts
