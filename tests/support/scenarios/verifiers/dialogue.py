"""A dialogue of two turns, whose second message comes from the environment."""

import verifiers.v1 as vf


class Dialogue(vf.Task):
    @vf.reward
    async def turns(self, trace: vf.Trace) -> float:
        return trace.num_turns


class DialogueEnv(vf.SingleAgentEnv):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as interaction:
            await interaction.turn("Say hello")
            await interaction.turn("Say it again")


class Dialogues(vf.Taskset[Dialogue]):
    def load(self) -> list[Dialogue]:
        return [Dialogue(vf.TaskData(id="greeting"), self.config.task)]


__all__ = ["DialogueEnv", "Dialogues"]
