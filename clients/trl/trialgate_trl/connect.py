"""What a program that trains with TRL makes: it connects the program's trainer, agent and gateway."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from trialgate_client import Budgets

from .agents import Agent, AgentFunction, FunctionAgent
from .errors import RolloutError
from .gateway import Gateway, LoopThread
from .grpo import RolloutFunction, trial_reward
from .rollouts import Rollouts, Settings
from .weights import Weights
from .worker import Worker


class Trialgate:
    """Carries out a trainer's trials at a gateway, and gives the trainer's weights to the gateway's engines.

    GRPOTrainer takes `rollout_func` and `reward`, AsyncGRPOTrainer takes `worker(…)` and `weights`. Make one for each
    trainer.
    """

    reward = staticmethod(trial_reward)
    _key: ClassVar[str | None] = None

    def __init__(
        self,
        agent: Agent | AgentFunction,
        url: str,
        admin_key: str | None,
        *,
        quorum: int = 2,
        attempts: int = 2,
        max_trials: int = 64,
        trial_seconds: float = 3600.0,
        budgets: Budgets | None = None,
        retry_seconds: float = 600.0,
        most_failed_groups: int = 8,
        folder: str | Path | None = None,
        head_dtype: str = "model",
    ) -> None:
        """Connects to a gateway.

        `agent` carries out a trial: a function of the program that takes a `Trial` and returns its reward, or
        `sandboxed(…)`. `quorum`: how many trials of a group must be trainable. `attempts`: how often a trial is tried.
        `max_trials`: how many run at the same time. `retry_seconds`: how long a gateway that cannot be reached is asked
        again. `most_failed_groups`: after so many groups in a row without a quorum AsyncGRPOTrainer ends. `folder`:
        where weights are written for the engines, which must be able to read it; by default in the temporary folder,
        where only this user's engines can. `head_dtype`: "float32" for engines that were started to compute their
        output head in it.
        """
        self._loop = LoopThread()
        self._gateway = Gateway(url, admin_key, retry_seconds)
        self._trials = max_trials
        self._most_failed_groups = most_failed_groups
        # An agent that blocks its loop may wait for an engine that these weights have paused.
        self.weights = Weights(self._gateway, LoopThread(), folder, head_dtype)
        runner: Agent = FunctionAgent(agent) if callable(agent) else agent
        settings = Settings(quorum, attempts, trial_seconds, budgets)
        self._rollouts = Rollouts(self._gateway, runner, self.weights, settings)
        self.rollout_func = RolloutFunction(self._loop, self._rollouts, self.weights, max_trials)

    @classmethod
    def from_env(cls, agent: Agent | AgentFunction, **settings: Any) -> Trialgate:
        """Reads TRIALGATE_URL and TRIALGATE_ADMIN_KEY, and removes the key, so that agents do not inherit it.

        Later calls take the key that an earlier one has removed.
        """
        url = os.environ.get("TRIALGATE_URL")
        if not url:
            raise RolloutError(
                "TRIALGATE_URL is not set: it is the gateway's address, http://127.0.0.1:8700 after `npx trialgate up`"
            )
        cls._key = os.environ.pop("TRIALGATE_ADMIN_KEY", None) or cls._key
        return cls(agent, url, cls._key, **settings)

    def worker(self, dataset: Iterable[Mapping[str, Any]], args: Any) -> Worker:
        """Returns the rollout worker for AsyncGRPOTrainer. `args` are the trainer's own."""
        if args.token_budget is None:
            raise RolloutError(
                "the trainer's arguments have no token_budget, and the trainer would ask a vLLM of its own for it: set "
                "token_budget=0 to train the same number of samples in each row, or the most tokens of a row, at least "
                "the engines' max_model_len"
            )
        return Worker(self._loop, self._rollouts, self.weights, dataset, args, self._trials, self._most_failed_groups)

    def close(self) -> None:
        """Removes the weights that were written, and resumes engines that are still paused.

        AsyncGRPOTrainer does it when training ends. Without it the weights are removed when the process ends.
        """
        self.weights.destroy()
