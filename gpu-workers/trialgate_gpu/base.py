"""Finds the files of the base model and links them into version 0's checkpoint folder."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import GpuWorkerError

# The folder of the templates that a model has besides its default one, such as that of requests with tools.
TEMPLATES = "additional_chat_templates"
WANTED = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]


def find_model(model: str) -> Path:
    """Returns the model's folder. A Hugging Face name is downloaded into its cache first."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise GpuWorkerError(
                "MissingModel", f"model folder {folder} has no config.json, so it is not a Hugging Face checkpoint"
            )
        if not list(folder.glob("*.safetensors")):
            raise GpuWorkerError("MissingModel", f"model folder {folder} has no .safetensors file: convert it first")
        return folder.resolve()
    if folder.is_absolute() or model.startswith(("./", "../", "~")) or model.count("/") > 1:
        raise GpuWorkerError("MissingModel", f"model folder {folder} does not exist: correct `model` in the run file")
    return _download(model)


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise GpuWorkerError(
            "MissingModel", f"Hugging Face has no model {name!r} (or asks for a login): {error}"
        ) from error
    except Exception as error:
        offline = "HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else "is the network there?"
        what = (
            f"model {name!r} is not in the local cache and could not be downloaded ({offline}): {type(error).__name__}"
        )
        raise GpuWorkerError("MissingModel", f"{what}. Give a local folder as `model`, or download it first") from error


def link_files(source: Path, target: Path) -> list[str]:
    """Links every plain file and the templates of `source` into `target`; returns the names of those with tensors."""
    names = sorted(path.name for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    for name in names:
        (target / name).symlink_to((source / name).resolve())
    if (source / TEMPLATES).is_dir():
        (target / TEMPLATES).symlink_to((source / TEMPLATES).resolve())
    return [name for name in names if name.endswith(".safetensors")]
