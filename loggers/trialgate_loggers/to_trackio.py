"""A run in a project of trackio, in trackio's own database in `folder`."""

from __future__ import annotations

import os
from typing import Any

from trialgate_loggers.logger import Entry, Id, Refused, Run, ids_of, marked


class Logger:
    def __init__(self, run: Run, settings: dict[str, Any]) -> None:
        # trackio reads this when it is imported.
        os.environ["TRACKIO_DIR"] = settings["folder"]
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        self._trackio, self._storage = trackio, SQLiteStorage
        self._run, self._project = run, settings["project"]
        config = SQLiteStorage.get_run_config(self._project, run.name)
        if config is not None and config.get("trialgate_run") != run.key:
            raise Refused(
                f"the project {self._project} of trackio in {settings['folder']} has a run {run.name} of another "
                "origin: set another `project` or `folder`"
            )

    def written(self) -> set[Id]:
        logs = self._storage.get_logs(self._project, self._run.name)
        return ids_of([(row["step"], row) for row in logs])

    def write(self, entries: list[Entry]) -> None:
        run = self._trackio.init(
            project=self._project,
            name=self._run.name,
            group=self._run.group,
            config={**self._run.config, **self._run.tags, "trialgate_run": self._run.key},
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        for entry in entries:
            run.log(marked(entry), step=entry.id.step)
        # Only the end of a run says that its metrics are kept; `resume` opens it again.
        self._trackio.finish()
        if not {entry.id for entry in entries} <= self.written():
            raise OSError(f"trackio did not keep all metrics in {os.environ['TRACKIO_DIR']}: is the disk full?")

    def close(self, status: str, at: float) -> None:
        pass
