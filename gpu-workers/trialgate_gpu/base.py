"""Finds the files of the base model and links them into version 0's checkpoint folder."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import GpuWorkerError

# The folder of the templates that a model has besides its default one, such as that of requests with tools.
TEMPLATES = "additional_chat_templates"
CONFIG = "config.json"
WANTED = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]


class HubError(GpuWorkerError):
    """The hub could not be asked, so nobody knows whether it has the model."""


def find_model(model: str) -> Path:
    """Returns the model's folder. A Hugging Face name is downloaded into its cache first."""
    if (folder := _find_folder(model)) is not None:
        if not list(folder.glob("*.safetensors")):
            raise GpuWorkerError("MissingModel", f"model folder {folder} has no .safetensors file: convert it first")
        return folder.resolve()
    return _download(model)


def find_config(model: str, into: Path) -> Path:
    """Returns a folder with the model's `config.json`. That of a Hugging Face name is downloaded, into `into`."""
    folder = _find_folder(model)
    return _download(model, into) if folder is None else folder


def _find_folder(model: str) -> Path | None:
    """Returns None for a name on Hugging Face."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / CONFIG).is_file():
            raise GpuWorkerError(
                "MissingModel", f"model folder {folder} has no config.json, so it is not a Hugging Face checkpoint"
            )
        return folder
    if folder.is_absolute() or model.startswith(("./", "../", "~")) or model.count("/") > 1:
        raise GpuWorkerError("MissingModel", f"model folder {folder} does not exist: correct `model` in the run file")
    return None


def _download(name: str, config_into: Path | None = None) -> Path:
    """Downloads the model into its cache, or its configuration alone into a folder."""
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HFValidationError, RemoteEntryNotFoundError, RepositoryNotFoundError

    try:
        if config_into is not None:
            return Path(hf_hub_download(name, CONFIG, local_dir=config_into)).parent
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise GpuWorkerError(
            "MissingModel", f"Hugging Face has no model {name!r} (or asks for a login): {error}"
        ) from error
    except RemoteEntryNotFoundError as error:
        raise GpuWorkerError("MissingModel", f"Hugging Face's {name!r} has no {CONFIG}, so it is no model") from error
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        offline = "HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else "is the network there?"
        what = (
            f"model {name!r} is not in the local cache and could not be downloaded ({offline}): "
            f"{type(error).__name__}: {first}"
        )
        raise HubError("MissingModel", f"{what}. Give a local folder as `model`, or download it first") from error


def link_files(source: Path, target: Path) -> list[str]:
    """Links every plain file and the templates of `source` into `target`; returns the names of those with tensors."""
    names = sorted(path.name for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    for name in names:
        (target / name).symlink_to((source / name).resolve())
    if (source / TEMPLATES).is_dir():
        (target / TEMPLATES).symlink_to((source / TEMPLATES).resolve())
    return [name for name in names if name.endswith(".safetensors")]
