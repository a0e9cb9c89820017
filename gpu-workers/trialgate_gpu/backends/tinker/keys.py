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
    host = urlsplit(url).netloc
    for entry in json.loads(os.environ.get(VARIABLE) or "[]"):
        named, _, place = entry.partition("=")
        if named == host:
            return _read(host, place)
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
        raise GpuWorkerError("TrainerServerKey", f"{what}. {how}, and resume the run")
    return key
