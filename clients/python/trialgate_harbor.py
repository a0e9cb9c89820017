"""Trains a run with `rollouts: external` on Harbor's tasks, with Harbor's agents, environments and verifiers.

    pip install './clients/python[harbor]'   # Python 3.12 or newer
    export $(npx trialgate key RUN)
    python -m trialgate_harbor TASKS --agent mini-swe-agent

docs/harbor.md says what is reported. `python -m trialgate_harbor --help` has examples.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from trialgate_client import TrialgateApiError
from trialgate_program import (
    Refused,
    Trainee,
    add_options,
    json_object,
    positive,
    rounds,
    run_from_env,
    run_program,
    train_groups,
)
from trialgate_run import Run, Trial

EXAMPLES = """\
examples:
  python -m trialgate_harbor tasks/ --agent mini-swe-agent
      each task of the folder, in a container of Docker
  python -m trialgate_harbor tasks/ --agent claude-code --environment daytona
      in another of Harbor's environments, whose account you have
  python -m trialgate_harbor tasks/ --agent codex --environment trialgate --agent-args '{"skip_install": true}' \\
      --environment-args '{"path": ["/opt/agents/bin"], "readable": ["/opt/agents"]}'
      in Trialgate's own sandboxes, with an agent that this machine has in /opt/agents

The variables TRIALGATE_RUN, TRIALGATE_URL and TRIALGATE_RUN_KEY name the run: export $(npx trialgate key RUN)
"""

#: The variable in which Harbor gives an agent its trial's key. Harbor keeps its value out of the files that it writes.
KEY = "TRIALGATE_TRIAL_API_KEY"
#: The failures of our sandboxes by the name of their class. Harbor does not know them, and would grade the trial.
UNAVAILABLE = "SandboxUnavailableError"
REFUSED = "SandboxRefusedError"
#: These agents of Harbor ask no model.
WITHOUT_MODEL = ("oracle", "nop")
#: Clients of these protocols add the version to the URL themselves.
WITHOUT_VERSION = ("anthropic_messages", "google_generate_content")


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # Each trial has a log of its own, and the program prints why one is discarded.
    logging.getLogger("harbor").propagate = False
    run_program(lambda: train(options))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trialgate_harbor",
        description="Trains a run with `rollouts: external` on Harbor's tasks, agents and environments.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tasks", nargs="+", type=Path, help="the folder of a task, or a folder with such folders")
    parser.add_argument(
        "--agent", default="mini-swe-agent", help="one of Harbor's agents, or `module:Class` of your own (%(default)s)"
    )
    parser.add_argument(
        "--agent-args", type=json_object, default={}, metavar="JSON", help="the agent's own settings (Harbor's --ak)"
    )
    parser.add_argument(
        "--environment",
        default="docker",
        help="one of Harbor's environments, `trialgate` for our own sandboxes, or `module:Class` (%(default)s)",
    )
    parser.add_argument(
        "--environment-args", type=json_object, default={}, metavar="JSON", help="its own settings (Harbor's --ek)"
    )
    parser.add_argument(
        "--server", metavar="URL", help="run the trials on a server of Harbor (`harbor serve`), which has the tasks too"
    )
    parser.add_argument(
        "--starts", type=positive, default=3, metavar="N", help="how often a trial is begun until its agent starts (3)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what Harbor writes of each trial in this folder")
    add_options(parser)
    return parser.parse_args()


async def train(options: argparse.Namespace) -> int:
    require_harbor()
    tasks = (options.tasks if options.server else find_tasks(options.tasks))[: options.limit]
    run = run_from_env()
    async with AsyncExitStack() as stack:
        if options.environment == "trialgate":
            from trialgate_harbor_sandbox import ServeProcess

            for task in [] if options.server else tasks:
                require_shared_verifier(task)
            stack.push_async_callback(ServeProcess.close_all)
        run_trial = run_here
        if options.server:
            from trialgate_harbor_server import HarborServer

            server = HarborServer(options.server)
            stack.push_async_callback(server.close)
            run_trial = server.run
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trialgate-harbor-")))
        trainee = HarborTrainee(run, rounds(tasks, options.seed), options, folder, run_trial)
        return await train_groups(options.groups, trainee.train_on_next)


def require_harbor() -> None:
    try:
        import harbor  # noqa: F401
    except ModuleNotFoundError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise Refused(
            "Harbor 0.26 is not installed: pip install './clients/python[harbor]' (Python 3.12 or newer, "
            f"this is {version})",
            3,
        ) from error


def find_tasks(folders: list[Path]) -> list[Path]:
    """Returns the folders of tasks, in their order."""
    tasks: list[Path] = []
    for folder in folders:
        found = (
            [folder] if (folder / "task.toml").is_file() else sorted(file.parent for file in folder.glob("*/task.toml"))
        )
        if not found:
            raise Refused(f"{folder}: neither it nor a folder in it has a task.toml")
        tasks += [task.resolve() for task in found]
    return tasks


def require_shared_verifier(folder: Path) -> None:
    """Raises Refused for a task whose tests have an environment of their own. Harbor makes it after the agent ran."""
    from harbor.models.task.task import Task
    from harbor.models.task.verifier_mode import task_has_any_separate_verifier

    try:
        config = Task(folder).config
    except (ValueError, FileNotFoundError) as error:
        raise Refused(f"{folder}: {error}") from error
    if task_has_any_separate_verifier(config):
        raise Refused(
            f"{folder}: its tests want an environment of their own, which a sandbox of Trialgate does not give: "
            "name another --environment"
        )


class HarborTrainee(Trainee[Path]):
    """Runs trials through Harbor, and reports their rewards."""

    def __init__(
        self,
        run: Run,
        tasks: Iterator[Path],
        options: argparse.Namespace,
        folder: Path,
        run_trial: Callable[[Any], Awaitable[Any]],
    ) -> None:
        super().__init__(run, tasks)
        self._options = options
        self._folder = folder
        self._run_trial = run_trial

    def title_of(self, task: Path) -> str:
        return task.name

    async def attempt(self, task: Path, trial: Trial) -> float | None:
        result = await self.result_of(task, trial)
        if result is None or not result.reward_valid:
            return await self.discard(trial, _reason_of(result))
        rewards = {name: float(value) for name, value in result.verifier_result.rewards.items()}
        try:
            return await self.report(trial, rewards)
        except TrialgateApiError as error:
            # Such as the name of a reward that is too long.
            if error.status != 400:
                raise
            return await self.discard(trial, str(error))

    async def result_of(self, task: Path, trial: Trial) -> Any:
        """Runs a trial of Harbor.

        Only what comes before the agent is done again: a second agent would continue in the record of the first.
        """
        for start in range(1, self._options.starts + 1):
            # A name is used once, and has no other characters.
            name = f"{re.sub('[^A-Za-z0-9.-]', '-', trial.id)}-{trial.attempt}-{start}"
            try:
                result = await self._run_trial(self._config(task, trial, name))
            finally:
                if self._options.keep is None:
                    shutil.rmtree(self._folder / name, ignore_errors=True)
            failed = None if result is None else result.exception_info
            if failed is not None and failed.exception_type == REFUSED:
                raise Refused(f"{task}: {failed.exception_message}")
            if failed is None or _has_begun(result) or not failed.policy.should_retry:
                break
            if start < self._options.starts:
                reason = _reason_of(result)
                print(f"trial {trial.index} of {trial.task} did not start and begins again: {reason}", flush=True)
                await asyncio.sleep(2**start)
        return result

    def _config(self, task: Path, trial: Trial, name: str) -> Any:
        from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
        from harbor.models.trial.error_policy import ErrorPolicyOverride

        options = self._options
        agent = AgentConfig(**_named(options.agent, "name"), kwargs=options.agent_args)
        url, place = trial.base_url, _named(options.environment, "type")
        arguments = dict(options.environment_args)
        if options.environment == "trialgate":
            from trialgate_harbor_sandbox import inside_url

            place = {"import_path": "trialgate_harbor_sandbox:TrialgateSandbox"}
            arguments["gateway"] = urlunsplit(urlsplit(url)._replace(path=""))
            if _runs_inside(agent):
                url = inside_url(url)
            # While the agent runs, a task without a network has the gateway.
            agent.extra_allowed_hosts = [urlsplit(url).hostname]
        elif ":" not in options.environment and _runs_inside(agent) and _is_loopback(url):
            raise Refused(
                f"an agent in {options.environment} does not reach {url}: start the deployment with --gateway-host, "
                "and set TRIALGATE_URL to an address that it reaches"
            )
        _connect(agent, url, trial.api_key)
        return TrialConfig(
            task=TaskConfig(path=task),
            trial_name=name,
            trials_dir=self._folder,
            agent=agent,
            environment=EnvironmentConfig(**place, kwargs=arguments),
            override_error_policy={
                UNAVAILABLE: ErrorPolicyOverride(should_retry=True, should_grade=False, has_valid_reward=False),
                REFUSED: ErrorPolicyOverride(should_retry=False, should_grade=False, has_valid_reward=False),
            },
        )


async def run_here(config: Any) -> Any:
    """Runs a trial of Harbor in this process."""
    from harbor.trial.trial import Trial as HarborTrial

    try:
        begun = await HarborTrial.create(config)
    except (ValueError, ImportError, RuntimeError, FileNotFoundError) as error:
        raise Refused(f"Harbor refuses the trial of {config.task.path}: {error}") from error
    return await begun.run()


def _named(given: str, key: str) -> dict[str, str]:
    return {"import_path": given} if ":" in given else {key: given}


def _class_of(agent: Any) -> Any:
    """Raises Refused for an agent that Harbor does not know."""
    from harbor.agents.factory import AgentFactory

    try:
        return AgentFactory.get_agent_class_from_config(agent)
    except (ValueError, ImportError, AttributeError) as error:
        raise Refused(f"--agent: {error}") from error


def _runs_inside(agent: Any) -> bool:
    """Returns True for an agent that asks the model inside its environment; others do so in Harbor's own process."""
    from harbor.agents.installed.base import BaseInstalledAgent

    found = _class_of(agent)
    return issubclass(found, BaseInstalledAgent) or getattr(found, "MODEL_CONNECTION", None) is None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _has_begun(result: Any) -> bool:
    """Returns True when an agent has begun, also in one step of a task."""
    return any(each.agent_execution is not None for each in (result, *(result.step_results or [])))


def _connect(agent: Any, url: str, key: str) -> None:
    """Gives an agent the URL and the key of its trial: as Harbor gives them, or in variables to an agent of the user's
    own of whose endpoint Harbor knows nothing.
    """
    agent.model_name = f"openai/{Trial.model}"
    without_version = url.removesuffix("/v1")
    spec = getattr(_class_of(agent), "MODEL_CONNECTION", None)
    if spec is None:
        if agent.import_path is None and agent.name not in WITHOUT_MODEL:
            raise Refused(f"--agent {agent.name}: Harbor cannot set the URL at which it asks its model")
        agent.env = {
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": without_version,
            "ANTHROPIC_API_KEY": key,
        }
        return
    formats = [each.value for each in spec.supported_api_formats]
    agent.base_url = without_version if formats and all(each in WITHOUT_VERSION for each in formats) else url
    agent.model_api_key_name = KEY
    agent.env = {KEY: key}


def _reason_of(result: Any) -> str:
    if result is None:
        return "Harbor's server has no result of it"
    failures = result.recorded_exceptions()
    if not failures:
        return "the verifier gave no reward"
    decisive = next((each for each in failures if not each.policy.has_valid_reward), failures[-1])
    return f"{decisive.exception_type}: {decisive.exception_message}".split("\n")[0]


if __name__ == "__main__":
    main()
