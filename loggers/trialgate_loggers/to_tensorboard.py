"""Event files of TensorBoard in `FOLDER/RUN`. An entry is one event, whose checksum tells whether it is complete."""

from __future__ import annotations

from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar import metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_ndarray, make_tensor_proto

from trialgate_loggers.logger import Entry, Id, Run, id_of, marked, own_folder


class Logger:
    def __init__(self, run: Run, settings: dict[str, Any]) -> None:
        self._folder = own_folder(settings, run)
        self._writer: EventFileWriter | None = None

    def written(self) -> set[Id]:
        found = (
            id_of(value.tag, event.step, make_ndarray(value.tensor).item())
            for file in sorted(self._folder.glob("*tfevents*"))
            for event in EventFileLoader(str(file)).Load()
            for value in event.summary.value
        )
        return {each for each in found if each is not None}

    def write(self, entries: list[Entry]) -> None:
        # Made at the first write, so that a run which has nothing new gets no empty file.
        self._writer = self._writer or EventFileWriter(str(self._folder))
        for entry in entries:
            values = [
                Summary.Value(
                    tag=name,
                    metadata=metadata.create_summary_metadata("", ""),
                    tensor=make_tensor_proto(value, dtype="float32"),
                )
                for name, value in marked(entry).items()
            ]
            self._writer.add_event(Event(wall_time=entry.time, step=entry.id.step, summary=Summary(value=values)))
        self._writer.flush()

    def close(self, status: str, at: float) -> None:
        if self._writer is not None:
            self._writer.close()
