"""A CSV file with a row for each entry, `FOLDER/RUN/metrics.csv`."""

from __future__ import annotations

import csv
import os
from datetime import UTC, datetime
from typing import Any

from trialgate_loggers.logger import Entry, Id, Run, ids_of, marked, own_folder


class Logger:
    def __init__(self, run: Run, settings: dict[str, Any]) -> None:
        self._file = own_folder(settings, run) / "metrics.csv"
        self._rows: list[dict[str, str]] = []
        if self._file.exists():
            with self._file.open(newline="") as file:
                self._rows = list(csv.DictReader(file))

    def written(self) -> set[Id]:
        return ids_of([(int(row["step"]), {n: v for n, v in row.items() if v != ""}) for row in self._rows])

    def write(self, entries: list[Entry]) -> None:
        """Replaces the file at once, because a later entry may have new columns."""
        rows = self._rows + [
            {
                "step": str(entry.id.step),
                "time": datetime.fromtimestamp(entry.time, UTC).isoformat(),
                **{name: repr(value) for name, value in marked(entry).items()},
            }
            for entry in entries
        ]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        new = self._file.with_suffix(".new")
        with new.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)
        self._rows = rows

    def close(self, status: str, at: float) -> None:
        pass
