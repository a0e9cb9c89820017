"""Prints the license of each installed package as JSON, from its metadata, for `npm run check`."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distributions


def licenses(package: Distribution) -> list[str]:
    """Returns the SPDX expression, else the names in the classifiers, else the first line of the license field."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return [expression]
    classifiers = [each.split(" :: ") for each in metadata.get_all("Classifier") or []]
    if named := [parts[-1] for parts in classifiers if parts[0] == "License" and parts[-1] != "OSI Approved"]:
        return named
    text = (metadata.get("License") or "").strip()
    return [text.splitlines()[0].strip()] if text else []


if __name__ == "__main__":
    found = [{"name": each.name, "version": each.version, "licenses": licenses(each)} for each in distributions()]
    print(json.dumps(found))
