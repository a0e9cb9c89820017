"""A run in an experiment of an mlflow server."""

from __future__ import annotations

import os
import re
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from trialgate_loggers.logger import EVALUATION, TRAINING, Entry, Id, Refused, Run, id_of, marked
from trialgate_loggers.mlflow_traces import Traces

# A trace waits less for its answer than metrics, unless the user says how long to wait.
TRACE_TIMEOUT = os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
# An outage is reported and tried again by the program that starts this one.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")

STATUS = {"completed": "FINISHED", "failed": "FAILED", "cancelled": "KILLED", "superseded": "KILLED"}
# Limits of mlflow's route `log-batch`, and of the length of a parameter.
METRICS_AT_ONCE = 1000
PARAMS_AT_ONCE = 100
PARAM_LENGTH = 6000


class Logger:
    def __init__(self, run: Run, settings: dict[str, Any]) -> None:
        uri = settings.get("tracking_uri") or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            raise Refused("mlflow needs the address of its server: set `tracking_uri`, or MLFLOW_TRACKING_URI")
        self._client = MlflowClient(uri)
        experiment = self._experiment(settings["experiment"])
        found = self._client.search_runs([experiment], f"tags.`trialgate.run` = '{run.key}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            known = found[0].data.params
        else:
            tags = {**run.tags, "trialgate.run": run.key, "trialgate.group": run.group}
            start = int(1000 * run.started)
            self._run = self._client.create_run(experiment, start, tags, run_name=run.name).info.run_id
            known = {}
        self.traces = Traces(self._client, experiment, run, self._run, TRACE_TIMEOUT)
        # An earlier start may have been cut before it had written them all. A parameter cannot change.
        wanted = {clean(name): str(value)[:PARAM_LENGTH] for name, value in run.config.items()}
        params = [Param(name, value) for name, value in wanted.items() if name not in known]
        for at in range(0, len(params), PARAMS_AT_ONCE):
            self._client.log_batch(self._run, params=params[at : at + PARAMS_AT_ONCE])

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        try:
            return self._client.create_experiment(name)
        except MlflowException:
            # Another run may have made it meanwhile.
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return found.experiment_id

    def written(self) -> set[Id]:
        history = [
            metric for name in (TRAINING, EVALUATION) for metric in self._client.get_metric_history(self._run, name)
        ]
        found = (id_of(metric.key, metric.step, metric.value) for metric in history)
        return {each for each in found if each is not None}

    def write(self, entries: list[Entry]) -> None:
        """A server keeps equal metrics of equal times once, so what a cut write had begun is not there twice."""
        metrics = [
            Metric(clean(name), value, int(1000 * entry.time), entry.id.step)
            for entry in entries
            for name, value in marked(entry).items()
        ]
        for at in range(0, len(metrics), METRICS_AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[at : at + METRICS_AT_ONCE])

    def close(self, status: str, at: float) -> None:
        if status in STATUS:
            self._client.set_terminated(self._run, STATUS[status], int(1000 * at))


def clean(name: str) -> str:
    """Returns a name that mlflow takes: `_at_` in the place of `@`, as verl writes it, and `_` in that of others."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))
