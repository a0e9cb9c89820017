"""Checks before a run starts that the trainer can train its model with its settings.

python -m trialgate_gpu.check_trainer MODEL \\
    '{"lora_rank": 8, "lora_alpha": 32, "target_modules": ["q_proj"], "seed": 0}'

With `trainer_server` in the settings, MODEL is the name that the run has for it, and the server is asked. Otherwise
MODEL is a folder, of which only the configuration is read. With `--device`, whether it fits on this machine is checked
too. When the model cannot be trained, the last line of the output says why, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .backends.tinker.client import TinkerClient
from .backends.tinker.keys import is_readable_here
from .backends.tinker.model import open_session
from .device import default_pack_tokens
from .errors import GpuWorkerError
from .group.fit import LEAST_TOKENS, Ranks, total_main_memory, what_lacks
from .lora import Lora, add_adapter
from .outline import outline
from .policy import layers_of
from .progress import Progress
from .router_replay import RoutedLayers
from .settings import TrainerServer

REFUSED = 3
WARNED = 4
# A person waits for the server's answer.
SERVER_SECONDS = 15.0
RECONNECT_SECONDS = 3.0


def check_server(model: str, server: TrainerServer) -> None:
    """Raises `GpuWorkerError` when the server is away, does not serve the model, or refuses the key."""
    try:
        with TinkerClient(server.url, Progress(), SERVER_SECONDS, request_seconds=SERVER_SECONDS) as client:
            client.reconnect_seconds = RECONNECT_SECONDS
            open_session(client, server.model or model)
    except GpuWorkerError as error:
        # The GPU worker's environment has the variable of a key, this program's may not have it.
        if error.kind != "TrainerServerKey" or is_readable_here(server.url):
            raise


def check_model(
    folder: Path,
    settings: Mapping[str, Any],
    on: str | None = None,
    ranks: int = 1,
    *,
    offload: bool = False,
    recompute: bool = False,
    pack_tokens: int | None = None,
) -> str | None:
    """Raises `BadModel` when the trainer does not support the model, `BadSettings` when it lacks a named layer,
    or with `enable_router_replay` routers that can replay an engine's experts.

    Raises `DoesNotFit` when `ranks` processes on the device `on` of this machine need more memory than there is.
    Returns a warning when they would for a full pack of `pack_tokens`, or for a call as long as `max_prompt_length` and
    `max_response_length` of `settings` allow: neither needs to occur.
    """
    model = outline(folder)
    if lora := Lora.from_settings(dict(settings)):
        add_adapter(model, lora)
    if settings.get("enable_router_replay"):
        RoutedLayers.of(layers_of(model)).require_mixture()
    if on is None:
        return
    if on == "cuda" and torch.cuda.device_count() < ranks:
        # This program may see other GPUs than the ranks, which say so themselves when they start.
        return None
    device = torch.device("cuda", 0) if on == "cuda" else torch.device("cpu")
    pack = pack_tokens or default_pack_tokens(device)
    longest = settings.get("max_prompt_length", 0) + settings.get("max_response_length", 0)

    def lacks(tokens: int, *, is_sequence: bool = False) -> str | None:
        of_ranks = Ranks(device, ranks, ranks, torch.bfloat16, tokens, offload, recompute, is_sequence)
        # What other programs and an earlier run's model occupy now may be free when this run loads its own.
        return what_lacks(model, of_ranks, total_main_memory())

    if what := lacks(min(LEAST_TOKENS, pack)):
        raise GpuWorkerError("DoesNotFit", what)
    if what := lacks(pack):
        return f"a step of full packs may end with full memory (`OutOfMemory`): {what}"
    if longest > pack and (what := lacks(longest, is_sequence=True)):
        return f"a call as long as the run file allows could not be trained (`DoesNotFit`): {what}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--pack-tokens", type=int)
    parser.add_argument("--cpu-offload", action="store_true")
    parser.add_argument("--activation-checkpointing", action="store_true")
    given = parser.parse_args()
    try:
        if server := given.settings.get("trainer_server"):
            check_server(given.model, TrainerServer(**server))
        else:
            folder = Path(given.model)
            warning = check_model(
                folder,
                given.settings,
                given.device,
                given.ranks,
                offload=given.cpu_offload,
                recompute=given.activation_checkpointing,
                pack_tokens=given.pack_tokens,
            )
            if warning:
                print(warning)
                sys.exit(WARNED)
    except GpuWorkerError as error:
        print(error)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
