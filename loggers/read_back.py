"""Prints what loggers have, as their own readers tell it: for the tests.

Each argument is LOGGER=FOLDER, and the answer has the entries by run. An entry is `[step, kind, value]`: a train step
with its gradient norm, or an evaluation with its number. `traces=URL` has the traces of an mlflow server instead.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from trialgate_loggers.logger import EVALUATION, STEP, TRAINING

GRADIENT = "actor/grad_norm"
Rows = dict[str, list[tuple[int, str, float]]]


def rows_of(rows: list[tuple[int, dict[str, float]]]) -> list[tuple[int, str, float]]:
    return [
        (step, "train", row[GRADIENT]) if row.get(TRAINING) is not None else (step, "eval", row[EVALUATION])
        for step, row in rows
    ]


def tensorboard(folder: Path) -> Rows:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    found: Rows = {}
    for run in sorted(folder.iterdir()):
        reader = EventAccumulator(str(run), size_guidance={"tensors": 0}).Reload()
        kinds = (("train", GRADIENT), ("eval", EVALUATION))
        present = reader.Tags()["tensors"]
        events = [(e, kind) for kind, tag in kinds if tag in present for e in reader.Tensors(tag)]
        found[run.name] = [
            (event.step, kind, make_ndarray(event.tensor_proto).item())
            for event, kind in sorted(events, key=lambda each: each[0].wall_time)
        ]
    return found


def trackio(folder: Path) -> Rows:
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    runs = SQLiteStorage.get_runs("trialgate")
    logs = {run: SQLiteStorage.get_logs("trialgate", run) for run in runs}
    return {run: rows_of([(row["step"], row) for row in rows]) for run, rows in logs.items()}


def wandb(folder: Path) -> Rows:
    """Reads the log with wandb's own messages, because wandb has no Python reader of what an offline run left."""
    from trialgate_loggers.to_wandb import history, started_as

    found: Rows = {}
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        name = started_as(file)
        if name is not None:
            found.setdefault(name, []).extend(rows_of([(int(row[STEP]), row) for row in history(file)]))
    return found


def traces(url: str) -> list[dict[str, Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(url)
    experiment = client.get_experiment_by_name("trialgate")
    assert experiment is not None
    found = client.search_traces(locations=[experiment.experiment_id], max_results=500)
    return [
        {
            "trial": trace.info.tags["trialgate.trial"],
            "run": client.get_run(trace.info.trace_metadata["mlflow.sourceRun"]).info.run_name,
            "outcome": trace.info.tags["trialgate.outcome"],
            "rewards": {each.name: each.value for each in trace.info.assessments},
            "tokens": (trace.info.token_usage or {}).get("total_tokens", 0),
            "spans": sorted([span.span_type, span.name, span.status.status_code.value] for span in trace.data.spans),
        }
        for trace in found
    ]


READERS = {"tensorboard": tensorboard, "trackio": trackio, "wandb": wandb}


def read(name: str, place: str) -> Any:
    return traces(place) if name == "traces" else READERS[name](Path(place))


print(json.dumps({name: read(name, place) for name, place in (argument.split("=", 1) for argument in sys.argv[1:])}))
