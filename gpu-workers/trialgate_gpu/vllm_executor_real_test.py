"""The reader of a worker's answers, on vLLM's own queue."""

from __future__ import annotations

from threading import Thread

import pytest


@pytest.mark.real
def test_a_notification_that_is_lost_holds_the_engine_up_for_seconds() -> None:
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    from trialgate_gpu.vllm_executor import LOOK_MS, make_quiet

    writer = MessageQueue(n_reader=1, n_local_reader=1)
    reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
    ready = Thread(target=writer.wait_until_ready)
    ready.start()
    reader.wait_until_ready()
    ready.join()

    condition = reader._spin_condition
    make_quiet(condition)
    writer._spin_condition.notify = lambda: None
    slept: list[int | None] = []
    poll = condition.poller.poll

    def poll_and_answer(timeout: int | None = None) -> list[tuple[object, int]]:
        slept.append(timeout)
        events = poll(timeout=timeout)
        if len(slept) == 3:
            writer.enqueue("an answer")
        return events

    condition.poller.poll = poll_and_answer
    assert reader.dequeue(indefinite=True) == "an answer"
    assert len(slept) >= 3
    assert all(timeout is not None and timeout <= LOOK_MS for timeout in slept)
