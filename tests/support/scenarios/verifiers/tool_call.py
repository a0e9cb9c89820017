"""A resource server of NeMo Gym with one row."""

from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.tasksets.nemo_gym import NeMoGymConfig, NeMoGymEnv, NeMoGymTask, NeMoGymTaskset


class ToolCallConfig(NeMoGymConfig):
    dataset: Path = Path(__file__).with_name("tool_call.jsonl")


class ToolCallTaskset(NeMoGymTaskset, vf.Taskset[NeMoGymTask, ToolCallConfig]):
    resource_server = "resources_servers.example_single_tool_call.app:SimpleWeatherResourcesServer"


__all__ = ["NeMoGymEnv", "ToolCallTaskset"]
