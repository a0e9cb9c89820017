"""Uses the package wrongly, and with agents and engines that fail, for clients/trl/trl.test.ts. It needs no TRL.

python misuse.py GATEWAY ADMIN_KEY ENGINE TASKS [CASE…]: prints what each case said, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator

from trialgate_client import TrialgateClient
from trialgate_trl import RolloutError, Trial, Trialgate, sandboxed
from trialgate_trl.agents import Done
from trialgate_trl.grpo import SETTLE_SECONDS, sampling_of

GATEWAY, ADMIN_KEY, ENGINE, TASKS, *WANTED = sys.argv[1:]
PROMPTS = [[{"role": "user", "content": f"say {word}"}] for word in ("one", "one", "two", "two")]


def ask(url: str, body: Any, key: str = "") -> Any:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)) as reply:
        return json.load(reply)


def fake(fails: list[str] | None = None, ignores: bool = False, holds: bool = False) -> Any:
    return ask(f"{ENGINE}/fake", {"fails": fails or [], "ignores": ignores, "holds": holds})


def say(trial: Trial, text: str | None = None) -> None:
    messages = trial.prompt if text is None else [{"role": "user", "content": text}]
    ask(f"{trial.base_url}/chat/completions", {"model": "policy", "messages": messages}, trial.api_key)


def good(trial: Trial) -> float:
    say(trial)
    return 1.0


class Trainer:
    """The parts of GRPOTrainer that the package reads."""

    use_vllm = False

    def __init__(self, **args: Any) -> None:
        settings = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
        more = {"max_completion_length": 16, "num_generations": 2, "queue_maxsize": 64, "token_budget": 0}
        self.args = SimpleNamespace(**settings | more | args)
        self.state = SimpleNamespace(global_step=0)
        self.accelerator = Accelerator(cpu=True)
        self.model = torch.nn.Linear(2, 2)
        self.processing_class = SimpleNamespace(eos_token_id=2)

    def step(self) -> None:
        self.state.global_step += 1
        with torch.no_grad():
            self.model.weight += 1


def connected(agent: Any = good, url: str = GATEWAY, key: str = ADMIN_KEY, **settings: Any) -> Trialgate:
    return Trialgate(agent, url, key, **{"retry_seconds": 0.2, "attempts": 1, **settings})


def error_of(do: Callable[[], Any]) -> str:
    try:
        do()
    except RolloutError as error:
        return str(error)
    return "no error"


def with_agent(agent: Any, **settings: Any) -> str:
    return error_of(lambda: connected(agent, **settings).rollout_func(PROMPTS, Trainer()))


def raising(trial: Trial) -> float:
    raise KeyError("the tool is missing")


def silent(trial: Trial) -> float:
    return 1.0


def unrewarded(trial: Trial) -> None:
    say(trial)


def not_finite(trial: Trial) -> float:
    say(trial)
    return float("nan")


def slow(trial: Trial) -> float:
    time.sleep(1)
    return 1.0


def hanging(trial: Trial) -> float:
    threading.Event().wait()
    return 1.0


def with_own_timeout(trial: Trial) -> float:
    raise TimeoutError("no answer of the tool")


def none_in_rewards(trial: Trial) -> Any:
    say(trial)
    return {"tests": None}


def list_of_rewards(trial: Trial) -> Any:
    say(trial)
    return [1.0]


def with_failing_calls(trial: Trial) -> float:
    fake(["/v1/chat/completions"])
    try:
        say(trial)
    except urllib.error.HTTPError:
        return 1.0
    finally:
        fake()
    return 2.0


class OwnSessions:
    """Makes its sessions by itself, as `sandboxed` does. The trainer's sampling does not reach them."""

    def __init__(self, made: bool) -> None:
        self._made = made

    def check(self, prompts: Any) -> None: ...

    async def run(self, prompt: Any, open_trial: Any) -> Done:
        if not self._made:
            return Done("try-elsewhere", 1.0)
        client = TrialgateClient(GATEWAY, ADMIN_KEY)
        opened = client.create(sampling={"temperature": 0.5})
        say(Trial(prompt, opened["session_id"], opened["base_url"], opened["api_key"]))
        client.complete(opened["session_id"])
        return Done(opened["session_id"], 1.0)


class Ending:
    """Of its trials the first ends the training; each other takes a while to end."""

    def __init__(self) -> None:
        self.started = self.ended = 0

    def check(self, prompts: Any) -> None: ...

    async def run(self, prompt: Any, open_trial: Any) -> Done:
        self.started += 1
        if self.started == len(PROMPTS):
            raise RolloutError("the end")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            self.ended += 1
        raise AssertionError


def others_end() -> Any:
    agent = Ending()
    return {"error": with_agent(agent), "ended": agent.ended}


def one_fails() -> Any:
    """Of four trials one fails at its first attempt, another at both."""
    failures = {"say one": 1, "say two": 2}
    sessions: dict[str, list[str]] = {}

    def agent(trial: Trial) -> float:
        sessions.setdefault(trial.text, []).append(trial.id)
        if failures[trial.text]:
            failures[trial.text] -= 1
            raise ValueError("a broken tool")
        say(trial)
        return {"tests": 0.5, "style": 0.25}

    trialgate = connected(agent, attempts=2, quorum=1, max_trials=1)
    done = trialgate.rollout_func(PROMPTS, Trainer())
    reward = trialgate.reward(completions=[], **done)
    return {
        "rewards": reward,
        "masks": [sum(mask) for mask in done["env_mask"]],
        "lengths": sorted({len(column) for column in done.values()}),
        "sessions": {text: len(set(ids)) for text, ids in sessions.items()},
        "versions": done["policy_versions"][0],
    }


def branches() -> Any:
    """Each trial asks two different things, which are two samples."""

    def agent(trial: Trial) -> float:
        say(trial)
        say(trial, "something else")
        return 1.0

    done = connected(agent).rollout_func(PROMPTS, Trainer())
    return [sum(mask) for mask in done["env_mask"]]


def other_weights() -> str:
    """Another program publishes to the engine between the trainer's weights and its trials."""

    def agent(trial: Trial) -> float:
        ask(f"{ENGINE}/update_weight_version", {"new_version": "another-run@1"})
        time.sleep(1.3)
        say(trial)
        return 1.0

    return with_agent(agent)


def weights(fails: list[str], ignores: bool) -> Any:
    """The second version does not reach the engine."""
    trialgate, trainer = connected(), Trainer()
    trialgate.rollout_func(PROMPTS, trainer)
    name = trialgate.weights.name
    fake(fails, ignores)
    trainer.step()
    error = error_of(lambda: trialgate.rollout_func(PROMPTS, trainer))
    after = fake()
    return {"error": error.replace(name, "NAME"), "after": {**after, "loaded": Path(after["loaded"]).name}} | {
        "weight_version": after["weight_version"].replace(name, "NAME"),
        "version": trialgate.weights.version,
    }


def synchronise(trialgate: Trialgate) -> None:
    trialgate.weights.pause()
    trialgate.weights.send_weights(iter(torch.nn.Linear(2, 2).named_parameters()))
    trialgate.weights.resume()


def early() -> Any:
    """The engine answers with the second version while it is still asked what it has loaded."""
    trialgate = connected(good)
    sampling = sampling_of(Trainer().args)

    async def group() -> int:
        done = await trialgate._rollouts.group(PROMPTS[0], 2, sampling, 1, asyncio.Semaphore(2))
        return min(rollout.policy_version for rollout in done)

    synchronise(trialgate)
    time.sleep(SETTLE_SECONDS)
    fake(holds=True)
    second = threading.Thread(target=synchronise, args=[trialgate])
    second.start()
    try:
        while trialgate._loop.run(group()) < 2:
            pass
        return {"version_meanwhile": trialgate.weights.version}
    except RolloutError as error:
        return str(error)
    finally:
        fake()
        second.join()
        trialgate.close()


def blocking() -> bool:
    """An asynchronous agent blocks its loop until the next weights have been sent. Returns whether they were."""
    entered, sent = threading.Event(), threading.Event()
    seen: list[bool] = []

    async def agent(trial: Trial) -> float:
        entered.set()
        seen.append(sent.wait(20))
        raise ValueError("enough")

    trialgate = connected(agent, most_failed_groups=1)
    made = trialgate.worker([{"prompt": PROMPTS[0]}], Trainer().args)
    synchronise(trialgate)
    made.start()
    entered.wait()
    synchronise(trialgate)
    sent.set()
    made.stop()
    trialgate.close()
    return seen[0]


def pause_fails() -> Any:
    trialgate = connected()
    fake(["/pause"])
    error = error_of(trialgate.weights.pause)
    return {"error": error, "paused": fake()["paused"]}


def interrupted() -> Any:
    """AsyncGRPOTrainer's training ends after it has paused the engines."""
    trialgate = connected()
    trialgate.weights.init_weight_transfer()
    trialgate.weights.pause()
    before = fake()["paused"]
    trialgate.weights.destroy()
    return {"before": before, "after": fake()["paused"]}


def own_folder() -> Any:
    home = Path(tempfile.mkdtemp())
    trialgate = connected(folder=home)
    trialgate.rollout_func(PROMPTS, Trainer())
    modes = [oct(each.stat().st_mode & 0o777) for each in home.iterdir()]
    trialgate.close()
    return {"modes": modes, "after": len(list(home.iterdir()))}


def twice_from_env() -> str:
    os.environ.update({"TRIALGATE_URL": GATEWAY, "TRIALGATE_ADMIN_KEY": ADMIN_KEY})
    Trialgate.from_env(good)
    assert "TRIALGATE_ADMIN_KEY" not in os.environ
    return error_of(lambda: Trialgate.from_env(good).rollout_func(PROMPTS, Trainer()))


def failing_command() -> str:
    agent = sandboxed(TASKS, command=["false"], options=["--run", "settings.yaml"])
    prompt = agent.prompts()[0]["prompt"]
    return error_of(lambda: connected(agent).rollout_func([prompt, prompt], Trainer()))


def failed_trial() -> str:
    record = {"id": "try-failed", "rewards": None, "reason": "its verifier gave no reward"}
    says = f"import sys; print({json.dumps(json.dumps(record))}); sys.exit(4)"
    agent = sandboxed(TASKS, command=[sys.executable, "-c", says])
    prompt = agent.prompts()[0]["prompt"]
    return error_of(lambda: connected(agent).rollout_func([prompt, prompt], Trainer()))


def worker(agent: Any, sync: bool, rows: int = 4, **settings: Any) -> str:
    """Starts AsyncGRPO's worker as the trainer does, and returns what its health check says."""
    trialgate = connected(agent, **settings)
    made = trialgate.worker([{"prompt": prompt} for prompt in PROMPTS[:rows]], Trainer().args)
    if sync:
        trialgate.weights.init_weight_transfer()
        synchronise(trialgate)
    made.update_model_version(1)
    made.start()
    try:
        while True:
            made.check_health(60)
            try:
                made.rollout_buffer.get(timeout=0.1)
            except queue.Empty:
                continue
    except RolloutError as error:
        return str(error)
    finally:
        made.stop()
        trialgate.weights.destroy()


def use_vllm() -> str:
    trainer = Trainer()
    trainer.use_vllm = True
    return error_of(lambda: connected().rollout_func(PROMPTS, trainer))


def frozen() -> str:
    trialgate = connected()
    return error_of(lambda: trialgate.weights.send_weights(iter([])))


def main() -> None:
    unknown = sandboxed(TASKS)
    cases = {
        "no task": lambda: error_of(lambda: connected(unknown).rollout_func(PROMPTS, Trainer())),
        "no tasks": lambda: error_of(lambda: sandboxed(tempfile.mkdtemp())),
        "own prompts": lambda: error_of(lambda: unknown.check([row["prompt"] for row in unknown.prompts()])),
        "away": lambda: with_agent(good, url="http://127.0.0.1:9"),
        "wrong key": lambda: with_agent(good, key="wrong"),
        "use_vllm": use_vllm,
        "raising": lambda: with_agent(raising),
        "silent": lambda: with_agent(silent),
        "unrewarded": lambda: with_agent(unrewarded),
        "not finite": lambda: with_agent(not_finite),
        "slow": lambda: with_agent(slow, trial_seconds=0.2),
        "hanging": lambda: with_agent(hanging, trial_seconds=0.2),
        "own timeout": lambda: with_agent(with_own_timeout),
        "none in rewards": lambda: with_agent(none_in_rewards),
        "list of rewards": lambda: with_agent(list_of_rewards),
        "failing calls": lambda: with_agent(with_failing_calls, max_trials=1),
        "other deployment": lambda: with_agent(OwnSessions(False)),
        "temperature": lambda: with_agent(OwnSessions(True)),
        "others end": others_end,
        "failing command": failing_command,
        "failed trial": failed_trial,
        "twice from env": twice_from_env,
        "no token_budget": lambda: error_of(lambda: connected().worker([], Trainer(token_budget=None).args)),
        "top_p": lambda: error_of(lambda: connected().rollout_func(PROMPTS, Trainer(top_p=0.5))),
        "one fails": one_fails,
        "branches": branches,
        "other weights": other_weights,
        "reload fails": lambda: weights(["2"], False),
        "reload does nothing": lambda: weights([], True),
        "frozen": frozen,
        "pause fails": pause_fails,
        "interrupted": interrupted,
        "own folder": own_folder,
        "early": early,
        "blocking": blocking,
        "worker without rows": lambda: worker(good, True, rows=0),
        "worker without quorum": lambda: worker(raising, True, most_failed_groups=2),
        "worker without weights": lambda: worker(good, False),
    }
    results = {}
    for name in WANTED or cases:
        print(f"{name}:", file=sys.stderr, flush=True)
        results[name] = cases[name]()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
