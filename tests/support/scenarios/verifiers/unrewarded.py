"""A taskset whose tasks have a metric and no reward."""

import verifiers.v1 as vf


class Unrewarded(vf.Task):
    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return trace.num_turns


class UnrewardedTasks(vf.Taskset[Unrewarded]):
    def load(self) -> list[Unrewarded]:
        return [Unrewarded(vf.TaskData(name="a", prompt="Say a"), self.config.task)]


__all__ = ["UnrewardedTasks"]
