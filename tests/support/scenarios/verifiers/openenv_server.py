"""An OpenEnv server whose episodes end after two steps. It prints its address."""

import socket

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Said(Action):
    text: str


class Heard(Observation):
    turn: int


class Listener(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._turns = 0

    def reset(self, seed=None, episode_id=None, **_) -> Heard:
        self._turns = 0
        return Heard(turn=0)

    def step(self, action: Said, timeout_s=None, **_) -> Heard:
        self._turns += 1
        return Heard(turn=self._turns, reward=0.5, done=self._turns == 2)

    @property
    def state(self) -> State:
        return State(step_count=self._turns)


app = create_fastapi_app(Listener, Said, Heard, max_concurrent_envs=8)
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
