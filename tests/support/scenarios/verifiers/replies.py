"""Three rows with one turn each. The second rollout of the row `broken` raises when it is scored."""

import itertools

import verifiers.v1 as vf

SCORED = itertools.count()


class Reply(vf.Task):
    @vf.reward(weight=0.5)
    async def length(self, trace: vf.Trace) -> float:
        return len(trace.last_reply)

    @vf.reward(weight=1.0)
    async def serial(self, trace: vf.Trace) -> float:
        number = next(SCORED)
        if self.data.name == "broken" and number % 2:
            raise ValueError("the reward broke")
        return number

    @vf.reward(weight=0.0)
    async def watched(self, trace: vf.Trace) -> float:
        return 7

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return trace.num_turns


class RepliesConfig(vf.TasksetConfig):
    names: tuple[str, ...] = ("a", "b", "c")


class Replies(vf.Taskset[Reply, RepliesConfig]):
    def load(self) -> list[Reply]:
        return [Reply(vf.TaskData(name=name, prompt=f"Say {name}"), self.config.task) for name in self.config.names]


__all__ = ["Replies"]
