"""Sums, as a taskset of verifiers."""

import verifiers.v1 as vf


class Sum(vf.TaskData):
    answer: int


class SumTask(vf.Task[Sum]):
    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(str(self.data.answer) in trace.last_reply)

    @vf.reward(weight=0.01)
    async def short(self, trace: vf.Trace) -> float:
        return -len(trace.last_reply)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return trace.num_turns


class Sums(vf.Taskset[SumTask]):
    def load(self) -> list[SumTask]:
        return [
            SumTask(
                Sum(name=f"{a} + {b}", prompt=f"What is {a} + {b}? Answer with the number alone.", answer=a + b),
                self.config.task,
            )
            for a in range(2, 10)
            for b in range(2, 10)
        ]


__all__ = ["Sums"]
