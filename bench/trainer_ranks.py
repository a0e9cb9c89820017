"""Measures the trainer's group of ranks on a CPU, and its step beside TRL's.

    export PYTHONPATH=gpu-workers
    .trialgate/venv/bin/python bench/trainer_ranks.py --model .trialgate/models/SmolLM2-135M-Instruct
    .trialgate/venv/bin/python bench/trainer_ranks.py faults --repeats 20

- overhead: a train step in a resident group of one, and the same step in this process, in turns.
- checkpoint: the part of a step in which it waits for its checkpoint, with one rank and with two.
- memory: the main memory that a rank takes, beside its shard: its part of the float32 weights and moments.
- recovery: from the death of a rank to the end of the step that is done again.
- trl: a step of all weights and one of a LoRA adapter, beside TRL's on the same trajectories (`step_time.py`).
- faults: SIGKILL and SIGSTOP of either rank in every phase. No process may stay, the step must be finished under the
  same key, and its weights must be those of a step to which nothing happened.

Without --model it is a tiny random Llama with a tiny batch: that checks this file, and its figures say little. With one
a batch is 8 trials of a prompt of --prompt tokens and 5 turns, as in `step_time.py`. Several ranks compute in bfloat16,
which takes minutes a step on a processor without instructions for it: give `--dtype float32` there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from conftest import Run, make_tiny_model, two_groups
from step_time import ROOT, rows_of, trajectories
from trialgate_gpu.device import tune_process
from trialgate_gpu.errors import GpuWorkerError
from trialgate_gpu.group.backend import LocalBackend
from trialgate_gpu.group.controller import GroupOptions
from trialgate_gpu.progress import Progress
from trialgate_gpu.train_step import Trainer

PHASES = ("load", "forward", "backward", "reduce", "optimizer", "write")
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
FIGURES = ("overhead", "checkpoint", "memory", "recovery", "trl")
PACK_TOKENS = 2048
LORA_RANK = 32
# A rank that is stopped is found after so many seconds; the default of the GPU worker is 60.
SILENT_SECONDS = 2.0
STATE_BYTES = 12


def of_figures(name: str, values: list[float], unit: str = "s", aim: str = "") -> str:
    middle = statistics.median(values)
    return (
        f"{name:<62} {middle:9.3f} {unit:<2} ({min(values):.3f}-{max(values):.3f}, {len(values)} times)  {aim}".rstrip()
    )


def status_of(pid: int, name: str) -> int:
    """Returns a number of bytes from a process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


class Bench:
    """Every step has another seed, so that it is not found done."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.folder, self.repeats, self.arguments = folder, arguments.repeats, arguments
        self.model = arguments.model or make_tiny_model(folder / "model")
        self.failed = False
        self.hold = folder / "hold"
        self.hold.mkdir()
        os.environ["TRIALGATE_HOLD"] = str(self.hold)
        self.seed = 0
        self.rows = two_groups()
        if arguments.model:
            given = trajectories(arguments.prompt, AutoConfig.from_pretrained(self.model).vocab_size)
            given["logprobs"] = [[-4.0] * len(each) for each in given["completions"]]
            self.rows = rows_of(given)

    def run(self, name: str) -> Run:
        return Run(self.folder / name, self.model)

    def base(self, run: Run) -> dict[str, Any]:
        return {"run_id": "run", "model": str(run.model), "home": str(run.home)}

    def request(self, run: Run, base: str) -> dict[str, Any]:
        self.seed += 1
        return run.request(base, self.rows, seed=self.seed, optim={"lr": 1e-5})

    def threads(self, ranks: int) -> int:
        return max(1, len(os.sched_getaffinity(0)) // ranks)

    async def with_group(self, ranks: int, work: Callable[[LocalBackend], Awaitable[Any]]) -> Any:
        options = ("--device", "cpu", "--threads", str(self.threads(ranks)), "--pack-tokens", str(PACK_TOKENS))
        if self.arguments.dtype is not None:
            options += ("--compute-dtype", self.arguments.dtype)
        # Between two progress messages a step of a real model may take long.
        silent = 60.0 if self.arguments.model else SILENT_SECONDS
        backend = LocalBackend(GroupOptions(ranks, module="paused_rank", options=options, silent_seconds=silent))
        try:
            return await work(backend)
        finally:
            await backend.end()

    async def overhead(self) -> list[str]:
        here, there = self.run("here"), self.run("there")
        tune_process(self.threads(1))
        trainer = Trainer(torch.device("cpu"), PACK_TOKENS)
        parents = {"here": here.base(trainer)["checkpoint"]}
        seconds: dict[str, list[float]] = {"here": [], "there": []}

        async def work(backend: LocalBackend) -> None:
            parents["there"] = (await backend.load_base(self.base(there), Progress()))["checkpoint"]
            for number in range(self.repeats + 1):
                # The first and the second of a pair may find the machine in other states, so they swap places.
                for place in ("here", "there") if number % 2 else ("there", "here"):
                    request = self.request(here if place == "here" else there, parents[place])
                    start = time.perf_counter()
                    if place == "here":
                        made = trainer.train_step(request, Progress())
                    else:
                        made = await backend.train_step(request, Progress())
                    if number > 0:
                        seconds[place].append(time.perf_counter() - start)
                    parents[place] = made["checkpoint"]
                    await written(parents[place])

        await self.with_group(1, work)
        pairs = zip(seconds["there"], seconds["here"], strict=True)
        over = [100 * (group / alone - 1) for group, alone in pairs]
        return [
            of_figures("a step in this process", seconds["here"]),
            of_figures("a step in a resident group of one", seconds["there"]),
            of_figures("the group over this process, pair by pair", over, "%", "aim: at most 2"),
        ]

    async def checkpoint(self) -> list[str]:
        lines = []
        for ranks in (1, 2):
            run = self.run(f"checkpoint-{ranks}")
            shares, waits, wholes = [], [], []

            async def work(
                backend: LocalBackend, run: Run = run, shares: Any = shares, waits: Any = waits, wholes: Any = wholes
            ) -> None:
                parent = (await backend.load_base(self.base(run), Progress()))["checkpoint"]
                for number in range(self.repeats + 1):
                    start = time.perf_counter()
                    made = await backend.train_step(self.request(run, parent), Progress())
                    whole, parent = time.perf_counter() - start, made["checkpoint"]
                    metrics = made["metrics"]
                    # All that follows the canary: writing the weights, copying the state, putting them in place.
                    wait = metrics["timing_s/save_checkpoint"] + whole - metrics["timing_s/step"]
                    if number > 0:
                        wholes.append(whole)
                        waits.append(wait)
                        shares.append(100 * wait / whole)

            await self.with_group(ranks, work)
            lines.append(of_figures(f"a step, {ranks} rank(s)", wholes))
            lines.append(of_figures(f"it waits for its checkpoint, {ranks} rank(s)", waits))
            lines.append(of_figures(f"as a part of the step, {ranks} rank(s)", shares, "%", "aim: at most 10"))
        return lines

    async def memory(self) -> list[str]:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(self.model))
        shard = STATE_BYTES * sum(each.numel() for each in model.parameters()) / 2
        loads: dict[int, list[float]] = {0: [], 1: []}
        steps: dict[int, list[float]] = {0: [], 1: []}
        # By (rank, phase): the largest seen of the process's own memory, and of that which it maps from files.
        phases: dict[tuple[int, str], tuple[int, int]] = {}
        lowest: dict[int, int] = {}

        async def work(backend: LocalBackend) -> None:
            for number in range(self.repeats):
                await backend.end()
                # A request that every rank refuses starts the group and nothing else.
                await refused(backend, self.base(self.run("memory")) | {"lora_rank": -1})
                pids = {rank.number: rank.pid for rank in backend.group.ranks.values()}
                start = forgotten(pids)
                run = self.run(f"memory-{number}")
                async with sampled(pids, phases, progress := Progress()):
                    parent = (await backend.load_base(self.base(run), progress))["checkpoint"]
                for rank, pid in pids.items():
                    loads[rank].append((status_of(pid, "VmHWM") - start[rank]) / shard)
                before = forgotten(pids)
                async with sampled(pids, phases, progress := Progress()):
                    await written((await backend.train_step(self.request(run, parent), progress))["checkpoint"])
                for rank, pid in pids.items():
                    steps[rank].append((status_of(pid, "VmHWM") - before[rank]) / shard)
                lowest.update(start)

        await self.with_group(2, work)
        lines = [f"the shard of each of 2 ranks: {shard / 2**30:.3f} GiB of float32 weights and moments"]
        for rank in (0, 1):
            name = f"peak of making version 0 over rank {rank}'s own start, in shards"
            lines.append(of_figures(name, loads[rank], "x", "aim: at most 1"))
            name = f"peak of the first step and its checkpoint over that, rank {rank}"
            lines.append(of_figures(name, steps[rank], "x"))
        lines += [
            f"rank {rank}, at most in {phase!r}: {own / 2**30:.2f} GiB of its own, {mapped / 2**30:.2f} mapped"
            for (rank, phase), (own, mapped) in sorted(phases.items(), key=lambda each: each[0][0])
            if phase != "starting"
        ]
        lines += [f"rank {rank} before it had a model: {size / 2**30:.2f} GiB" for rank, size in lowest.items()]
        return lines

    async def lose(self, backend: LocalBackend, run: Run, phase: str, rank: int, how: signal.Signals) -> dict[str, Any]:
        """Loses a rank in a step, and does the step again."""
        base = (await backend.load_base(self.base(run), Progress()))["checkpoint"]
        request = self.request(run, base)
        if phase == "load":
            await backend.end()
        (self.hold / "held").unlink(missing_ok=True)
        (self.hold / f"{rank}-{phase}").touch()
        step = asyncio.ensure_future(backend.train_step(request, Progress()))
        while not (self.hold / "held").exists():
            if step.done():
                raise RuntimeError(f"the step ended before phase {phase}: {step.exception() or step.result()}")
            await asyncio.sleep(0.01)
        os.kill(int((self.hold / "held").read_text()), how)
        start = time.perf_counter()
        try:
            await step
            raise AssertionError("the step did not fail")
        except GpuWorkerError as error:
            if error.kind != "RankLost":
                raise
        noticed = time.perf_counter() - start
        orphans = self.processes()
        made = await backend.train_step(request, Progress())
        recovered = time.perf_counter() - start
        return {"how": how, "noticed": noticed, "recovered": recovered, "orphans": len(orphans)} | {
            "case": f"{how.name} of rank {rank} in {phase}",
            "made": made,
            "request": request,
        }

    def processes(self) -> list[int]:
        """Returns the living processes of all groups, which have this bench's folder in their environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(self.hold).encode() in environment and int(folder.name) != os.getpid() and state != "Z":
                found.append(int(folder.name))
        return found

    async def recovery(self) -> list[str]:
        found: list[dict[str, Any]] = []
        starts: list[float] = []

        async def work(backend: LocalBackend) -> None:
            run = self.run("recovery")
            for _ in range(self.repeats):
                found.append(await self.lose(backend, run, "backward", 1, signal.SIGKILL))
                base = (await backend.load_base(self.base(run), Progress()))["checkpoint"]
                begin = time.perf_counter()
                await backend.train_step(self.request(run, base), Progress())
                starts.append(time.perf_counter() - begin)

        await self.with_group(2, work)
        return [
            of_figures("a step with 2 ranks to which nothing happens", starts),
            of_figures(
                "from the death of a rank to its group's end", [e["noticed"] for e in found], aim="aim: at most 5"
            ),
            of_figures("from the death of a rank to the step's end, done again", [e["recovered"] for e in found]),
        ]

    async def trl(self) -> list[str]:
        """Runs `step_time.py` in TRL's environment, which also sees the packages of this one."""
        python = self.arguments.trl_environment / "bin" / "python"
        if not python.exists():
            return [f"beside TRL: not measured, because there is no {python} (bench/trl_baseline.py makes it)"]
        lines = []
        model = self.arguments.model or ROOT / ".trialgate" / "models" / "SmolLM2-135M-Instruct"
        for rank in (0, LORA_RANK):
            command = [python, ROOT / "bench" / "step_time.py", "--model", model, "--lora-rank", str(rank)]
            command += ["--prompts", str(self.arguments.prompt), "--repeats", str(self.repeats)]
            lines += subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        return lines

    async def faults(self) -> list[str]:
        cases = [(p, r, how) for p in self.arguments.phases for r in (0, 1) for how in SIGNALS]
        found: list[dict[str, Any]] = []
        run, other = self.run("faults"), self.run("expected")

        async def work(backend: LocalBackend) -> None:
            for _ in range(self.repeats):
                for case in cases:
                    found.append(await self.lose(backend, run, *case))
                    print(
                        f"{len(found)} of {self.repeats * len(cases)}: {found[-1]['case']}", file=sys.stderr, flush=True
                    )

        await self.with_group(2, work)
        good: Counter[str] = Counter()

        async def expected(backend: LocalBackend) -> None:
            base = (await backend.load_base(self.base(other), Progress()))["checkpoint"]
            for each in found:
                again = each["request"] | {"home": str(other.home), "parent_checkpoint": base}
                undisturbed = await backend.train_step(again, Progress())
                good["key"] += each["made"]["step_key"] == undisturbed["step_key"]
                # This is a digest of the weights and the key.
                good["weights"] += each["made"]["checkpoint_sha256"] == undisturbed["checkpoint_sha256"]

        await self.with_group(2, expected)
        count, orphans = len(found), sum(each["orphans"] for each in found)
        self.failed = bool(orphans or good["key"] != count or good["weights"] != count or self.processes())
        return [
            f"ranks lost: {count}: SIGKILL and SIGSTOP of ranks 0 and 1 in {', '.join(self.arguments.phases)}",
            f"processes that stayed: {orphans}; after all: {len(self.processes())}",
            f"steps finished under the same key: {good['key']} of {count}",
            f"with the weights of a step to which nothing happened: {good['weights']} of {count}",
            *(
                of_figures(f"from {how.name} to the group's end", [e["noticed"] for e in found if e["how"] == how])
                for how in SIGNALS
            ),
        ]


async def refused(backend: LocalBackend, request: dict[str, Any]) -> None:
    """Sends a request that lacks a field."""
    del request["model"]
    try:
        await backend.load_base(request, Progress())
    except GpuWorkerError as error:
        if error.kind != "BadRequest":
            raise


def forgotten(pids: dict[int, int]) -> dict[int, int]:
    """Makes each process's peak of memory what it has now, and returns that."""
    for pid in pids.values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return {rank: status_of(pid, "VmRSS") for rank, pid in pids.items()}


@asynccontextmanager
async def sampled(
    pids: dict[int, int], phases: dict[tuple[int, str], tuple[int, int]], progress: Progress
) -> AsyncIterator[None]:
    """Notes each process's memory many times a second, by the phase that rank 0 said last, at most 0.5 s ago."""

    async def sample() -> None:
        while True:
            for rank, pid in pids.items():
                key = (rank, str(progress.state["phase"]))
                own, mapped = phases.get(key, (0, 0))
                phases[key] = (max(own, status_of(pid, "RssAnon")), max(mapped, status_of(pid, "RssFile")))
            await asyncio.sleep(0.02)

    sampling = asyncio.ensure_future(sample())
    try:
        yield
    finally:
        sampling.cancel()


async def written(checkpoint: str) -> None:
    while not (Path(checkpoint) / "trainer" / "state.json").exists():
        await asyncio.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="FIGURE", help=f"any of {', '.join((*FIGURES, 'faults'))}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", type=Path, help="a model's folder (default: a tiny random Llama)")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="of the ranks' passes (default: theirs)")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a model's prompt")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES, help="for faults")
    parser.add_argument("--trl-environment", type=Path, default=ROOT / ".trialgate" / "trl")
    parser.add_argument(
        "--out", type=Path, help="file for the figures, which are added to its end (default: only printed)"
    )
    arguments = parser.parse_args()
    arguments.what = arguments.what or list(FIGURES)
    if unknown := set(arguments.what) - {*FIGURES, "faults"}:
        parser.error(f"no figure is called {sorted(unknown)[0]}")
    model = arguments.model.name if arguments.model else "a tiny random Llama"
    cores = len(os.sched_getaffinity(0))
    given = [each for each in sys.argv[1:] if each != "--out" and each != str(arguments.out)]
    lines = [
        f"$ python bench/trainer_ranks.py {' '.join(given)}",
        f"{time.strftime('%Y-%m-%d')}, {model}, {cores} cores",
        "",
    ]
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), arguments)
        for what in arguments.what:
            start = time.perf_counter()
            lines += asyncio.run(getattr(bench, what)())
            print(f"{what}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        with arguments.out.open("a") as file:
            file.write(f"{text}\n")
    if bench.failed:
        sys.exit("a fault left something behind")


if __name__ == "__main__":
    main()
