"""Starts ranks for tests: python forked_ranks.py RANKS -m MODULE ARGUMENTS...

It does what `python -m torch.distributed.run --standalone` does, but forks the ranks of a process that has imported
everything, so that not each of them imports it again. `group_test.py` uses the real command.
"""

from __future__ import annotations

import runpy
import sys
import uuid

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import trialgate_gpu.group.rank  # noqa: F401


def run(module: str, *arguments: str) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


def main() -> None:
    ranks, _, *command = sys.argv[1:]
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(ranks),
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="fork",
    )
    elastic_launch(config, run)(*command)


if __name__ == "__main__":
    main()
