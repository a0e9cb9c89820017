"""Finds the key of a trainer server. No setting and no record has the key itself, only the place of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from ...errors import GpuWorkerError

VARIABLE = "TRIALGATE_TRAINER_KEYS"


def key_of(url: str) -> str | None:
    """Returns the key of the server at this host, or None when the setting `trainer_keys` names none.

    The setting comes as a JSON list of HOST=VARIABLE and HOST=/path in the environment. A key goes to its host alone.
    """
    place = _place_of(url)
    return None if place is None else _read(urlsplit(url).netloc, place)


def is_readable_here(url: str) -> bool:
    """Returns False where the key is in an environment variable that this process does not have."""
    place = _place_of(url)
    return place is None or place.startswith("/") or bool(os.environ.get(place, "").strip())


def _place_of(url: str) -> str | None:
    for entry in json.loads(os.environ.get(VARIABLE) or "[]"):
        host, _, place = entry.partition("=")
        if host == urlsplit(url).netloc:
            return str(place)
    return None


def _read(host: str, place: str) -> str:
    if place.startswith("/"):
        how = "Put it there"
        try:
            key, fault = Path(place).read_text().strip(), f"the file {place} is empty"
        except OSError as error:
            key, fault = "", f"the file {place} cannot be read ({error.strerror})"
    else:
        how = "Set it, restart the GPU worker"
        key, fault = os.environ.get(place, "").strip(), f"the environment variable {place} is not set"
    if not key:
        what = f"trainer_keys: the key of {host} is missing: {fault}"
        raise GpuWorkerError("TrainerServerKey", f"{what}. {how}, and start or resume the run")
    return key
