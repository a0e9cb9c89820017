"""Trains a run with `rollouts: external` on an environment of `verifiers`: its taskset, its harness and its rewards.

    pip install './clients/python[verifiers]'   # Python 3.11 or newer
    export $(npx trialgate key RUN)
    python -m trialgate_verifiers ENVIRONMENT

docs/external.md says what is reported. `python -m trialgate_verifiers --help` has examples.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from trialgate_program import (
    Refused,
    Trainee,
    add_options,
    json_object,
    rounds,
    run_from_env,
    run_program,
    train_groups,
)
from trialgate_run import Run, Trial

EXAMPLES = """\
examples:
  python -m trialgate_verifiers sums
      the taskset in ./sums.py or in an installed package `sums`
  python -m trialgate_verifiers textarena --args '{"taskset": {"game": "Wordle-v0"}, "player": {"max_turns": 8}}'
      a game of TextArena (pip install 'verifiers[ta]')
  python -m trialgate_verifiers openenv --args '{"taskset": {"base_url": "http://localhost:8000"}}'
      a running OpenEnv server (pip install 'verifiers[openenv]')
  python -m trialgate_verifiers my-swe --args '{"agent": {"harness": {"id": "bash"}, "runtime": {"type": "docker"}}}'
      a harness that runs the model's shell commands, in containers

The variables TRIALGATE_RUN, TRIALGATE_URL and TRIALGATE_RUN_KEY name the run: export $(npx trialgate key RUN)
"""

#: Headers that belong to one connection, and those with the harness's own key.
_OWN_HEADERS = {
    "authorization",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "transfer-encoding",
    "x-api-key",
    "x-session-id",
}


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # The harnesses' programs are prepared by uv, which is installed beside this Python.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    run_program(lambda: train(options))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trialgate_verifiers",
        description="Trains a run with `rollouts: external` on an environment of verifiers 0.4.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("environment", help="the id of the taskset: the name of its module or package")
    parser.add_argument(
        "--args",
        type=json_object,
        default={},
        metavar="JSON",
        help="the environment's configuration, as under [env] in a file of verifiers",
    )
    add_options(parser)
    return parser.parse_args()


async def train(options: argparse.Namespace) -> int:
    environment = load(options.environment, options.args)
    run = run_from_env()
    tasks = in_order(environment.taskset, options.seed, options.limit)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(environment.serving())
        except Exception as error:
            raise Refused(f"environment {options.environment} does not start: {error}", 3) from error
        trainee = EnvironmentTrainee(environment, run, options.environment, tasks)
        await stack.enter_async_context(trainee.serving())
        return await train_groups(options.groups, trainee.train_on_next)


def load(name: str, args: dict[str, Any]) -> Any:
    """Returns the environment. verifiers imports its packages, so what they need must be installed."""
    try:
        import verifiers.v1 as vf
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "verifiers":
            raise
        raise Refused(
            "verifiers 0.4 is not installed: pip install './clients/python[verifiers]' (Python 3.11 or newer)", 3
        ) from error
    try:
        config = vf.resolve_env_config(with_defaults(vf, name, args))
        for role, harness in config.agent_harnesses().items():
            if (
                "runtime" not in args.get(role, {})
                and vf.load_harness(harness).EXECUTES_CODE
                and _is_local(config, role)
            ):
                example = json.dumps({role: {"runtime": {"type": "docker"}}})
                raise Refused(
                    f"environment {name}: the harness {harness.id} runs commands of the model: say where, such as "
                    f"--args '{example}' (docker, podman, apptainer, prime; subprocess is this machine itself)"
                )
        return vf.load_environment(config)
    except ImportError as error:
        raise Refused(
            f"environment {name}: {error} Install its package into {sys.executable}, or start in its folder.", 3
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise Refused(f"environment {name}: {_reason_of(error)}") from error


def with_defaults(vf: Any, name: str, args: dict[str, Any]) -> dict[str, Any]:
    """Returns the environment's configuration. Where neither the environment nor `args` chooses, an agent is a plain
    chat with the task's tools, on this machine. The choice of verifiers itself is a shell, in a sandbox of its vendor.
    """
    given = {**args, "taskset": {**args.get("taskset", {}), "id": name}}
    for role, field in vf.env_config_type(name, args.get("id", "")).model_fields.items():
        if not isinstance(field.default, vf.AgentConfig):
            continue
        agent = dict(args.get(role, {}))
        if field.default.harness is None and vf.default_harness_id(name) == "bash":
            agent.setdefault("harness", {"id": "null"})
        if "runtime" not in field.default.model_fields_set:
            agent.setdefault("runtime", {"type": "subprocess"})
        given[role] = agent
    return given


def _is_local(config: Any, role: str) -> bool:
    return getattr(config, role).runtime.type == "subprocess"


def _reason_of(error: Exception) -> str:
    """Returns pydantic's errors as one line; it writes a paragraph for each."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in errors())


def in_order(taskset: Any, seed: int, limit: int | None) -> Iterator[Any]:
    """Yields the tasks again and again, each time in another order that follows from the seed.

    A taskset without end comes in its own order.
    """
    view = taskset if limit is None else taskset.take(limit)
    if not view.bounded:
        return iter(view)
    tasks = list(view)
    if not tasks:
        raise Refused(f"the taskset {taskset.config.id} has no tasks")

    return rounds(tasks, seed)


class EnvironmentTrainee(Trainee[Any]):
    """Runs trials through an environment, and reports their rewards."""

    def __init__(self, environment: Any, run: Run, name: str, tasks: Iterator[Any]) -> None:
        super().__init__(run, tasks)
        self._environment = environment
        self._name = name
        self._context: Any = None
        #: The trials under way, by the ids of their rollouts.
        self._trials: dict[str, Trial] = {}

    def title_of(self, task: Any) -> str:
        data = task.data
        return data.id or data.name or f"{self._name}#{data.idx}"

    async def attempt(self, task: Any, trial: Trial) -> float | None:
        begun: list[Any] = []

        def on_trace(trace: Any) -> None:
            begun.append(trace)
            if trace.agent.trainable:
                self._trials[trace.id] = trial

        try:
            episode = await self._environment.run_episode(task, self._context, on_trace=on_trace)
        except Exception as error:
            return await self.discard(trial, f"{type(error).__name__}: {error}")
        finally:
            for trace in begun:
                self._trials.pop(trace.id, None)
        untrained = next((each.agent for each in begun if self._asks_us(each) and not each.agent.trainable), None)
        if untrained:
            example = json.dumps({untrained.name: {"model": "…", "client": {"base_url": "…", "api_key_var": "…"}}})
            raise Refused(
                f"environment {self._name}: its agent {untrained.name} is not trained: give it a model of its own, "
                f"--args '{example}'"
            )
        if not episode.ok:
            errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
            reason = f"{errors[-1].type}: {errors[-1].message}" if errors else "the rollout did not end well"
            return await self.discard(trial, reason)
        trained = [trace for trace in begun if self._asks_us(trace)]
        if len(trained) != 1:
            raise Refused(
                f"environment {self._name}: an episode has {len(trained)} rollouts of the policy. A trial has one, "
                "because all its calls are trained with one reward"
            )
        # A weight of 0 marks what an environment only watches.
        rewards = {name: each.value for name, each in trained[0].rewards.items() if each is not None and each.weight}
        if not rewards:
            raise Refused(
                f"environment {self._name} gives no reward: its tasks need a method with @vf.reward, or a judge, "
                "whose weight is not 0"
            )
        return await self.report(trial, rewards)

    def _asks_us(self, trace: Any) -> bool:
        return trace.agent.config.client.base_url == self._context.client.base_url

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves one address for the calls of all trials.

        verifiers keeps an HTTP client for each address and key, until it ends; each trial has an address and a key of
        its own.
        """
        import verifiers.v1 as vf
        from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, TCPConnector, web

        async def pass_on(request: web.Request) -> web.StreamResponse:
            # verifiers sends the rollout's id in this header.
            trial = self._trials.get(request.headers.get("x-session-id", ""))
            if trial is None:
                return _error(403, "this agent is not trained, or its trial has ended")
            headers = [*_kept(request.headers), ("authorization", f"Bearer {trial.api_key}")]
            url = trial.base_url + request.path_qs[len("/v1") :]
            try:
                asked = await session.request(request.method, url, data=await request.read(), headers=headers)
            except ClientConnectionError as error:
                return _error(503, f"the gateway cannot be reached: {error}")
            async with asked as answer:
                reply = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
                await reply.prepare(request)
                # An error here is not caught: it ends the connection, so a reply that is cut does not look complete.
                async for chunk in answer.content.iter_any():
                    await reply.write(chunk)
                await reply.write_eof()
                return reply

        def _error(status: int, message: str) -> web.Response:
            return web.json_response({"error": {"message": message, "type": "trialgate"}}, status=status)

        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/v1/{path:.*}", pass_on)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="TRIALGATE_NO_KEY")
            self._context = vf.ModelContext(model=Trial.model, client=client)
            async with ClientSession(
                connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None), auto_decompress=False
            ) as session:
                yield
        finally:
            await runner.cleanup()


def _kept(headers: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in _OWN_HEADERS]


if __name__ == "__main__":
    main()
