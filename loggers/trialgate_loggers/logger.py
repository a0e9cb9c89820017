"""A logger tells which entries it has, and writes more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Id(NamedTuple):
    """Names an entry: the train step of an iteration (`training`), or one of a step's evaluations (`val`)."""

    kind: str
    step: int
    number: int


@dataclass(frozen=True)
class Entry:
    """The metrics of one step of a run. A logger has all of an entry or nothing of it."""

    id: Id
    time: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Run:
    """The run as a logger shows it."""

    name: str
    """A name for people. After a `redo` it is that of a new branch, such as `first@6`."""
    key: str
    """Tells this run from an earlier one of the same name."""
    origin: str
    """Does the same, and is one for all branches."""
    group: str
    """The run's own name, which its branches share."""
    config: dict[str, str | int | float | bool]
    """The run file, flat."""
    tags: dict[str, str]
    started: float
    """The time at which it began, in seconds."""


class Refused(Exception):
    """A sentence for the user about what to change."""


class TraceRefused(Exception):
    """The store refuses this one trace, and may take others."""


class Unavailable(Exception):
    """A sentence for the user about a store that takes nothing now. It is tried again."""


class Logger(Protocol):
    """The interface of the class `Logger` in a module `to_NAME.py`."""

    def __init__(self, run: Run, settings: dict[str, Any]) -> None:
        """Opens the run in the logger's store, or makes it there."""

    def written(self) -> set[Id]:
        """Returns the entries that the store has. Entries of a write that was cut do not count."""

    def write(self, entries: list[Entry]) -> None:
        """Writes entries in their order. Raises where it learns that they are not kept."""

    def close(self, status: str, at: float) -> None:
        """Waits until all is kept. `status` is the run's, `superseded` for a branch that a redo left, or `open`.

        `at` is the time of that end.
        """


STEP = "training/global_step"
"""verl's name of the step."""
# The metrics that tell of which kind and number an entry is.
TRAINING = "training/iteration"
EVALUATION = "val/evaluation"


def marked(entry: Entry) -> dict[str, float]:
    """Returns the metrics with the one that tells which entry they are: last, in case a store keeps a part."""
    mark = {TRAINING: entry.id.step - 1} if entry.id.kind == "training" else {EVALUATION: entry.id.number}
    return {**entry.metrics, **mark}


def id_of(name: str, step: int, value: float) -> Id | None:
    """Returns the entry that a stored metric marks."""
    if name == TRAINING:
        return Id("training", step, 0)
    return Id("val", step, int(value)) if name == EVALUATION else None


def ids_of(rows: list[tuple[int, dict[str, Any]]]) -> set[Id]:
    """Returns the entries of rows that have a step and metrics by name."""
    found = (id_of(name, step, value) for step, metrics in rows for name, value in metrics.items() if value is not None)
    return {each for each in found if each is not None}


def own_folder(settings: dict[str, Any], run: Run) -> Path:
    """Returns the run's folder below the setting `folder`. A folder of another run of the same name is refused."""
    folder = Path(settings["folder"]) / run.name
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / "run.txt"
    if not mark.exists():
        # Half a mark would look like that of another run.
        draft = mark.with_suffix(".new")
        draft.write_text(run.key)
        draft.replace(mark)
    elif mark.read_text() != run.key:
        raise Refused(
            f"{folder} has the log of an earlier run of the name {run.group}: "
            "move or remove it, or set another `folder`"
        )
    return folder
