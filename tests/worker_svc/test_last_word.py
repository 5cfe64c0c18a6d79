"""A worker that leaves says so (docs/liveness.md, E1), also when it is busy saying something else."""

from __future__ import annotations

import asyncio

from signalbox.links.outbox import Outbox
from signalbox.v1 import from_worker_pb2
from worker_svc.links.scheduler_link import write_all

Message = from_worker_pb2.AttachWorkerRequest


class SlowStream:
    """Takes one message whenever it is told to."""

    def __init__(self) -> None:
        self.written: list[Message] = []
        self.is_done = asyncio.Event()
        self.may_write = asyncio.Semaphore(0)

    async def write(self, message: Message) -> None:
        await self.may_write.acquire()
        self.written.append(message)

    async def done_writing(self) -> None:
        self.is_done.set()


async def test_the_last_word_goes_out_behind_a_message_that_is_being_written() -> None:
    """E1: a busy worker's last word came while a report was being written, and was never sent: its requests waited
    for the evidence of a crash."""
    stream, outbox = SlowStream(), Outbox[Message](10)
    is_leaving = False
    writing = asyncio.create_task(write_all(outbox, stream, lambda: is_leaving))  # type: ignore[arg-type]
    report = from_worker_pb2.ModelRunnerOutput(step_id=1)
    outbox.put(Message(outputs=[report]))
    await asyncio.sleep(0)
    leaving = from_worker_pb2.WorkerEvent(leaving=from_worker_pb2.Leaving(reason="it was told to stop"))
    outbox.put(Message(events=[leaving]))
    is_leaving = True
    stream.may_write.release()
    stream.may_write.release()
    await asyncio.wait_for(stream.is_done.wait(), 5)
    assert [len(message.events) for message in stream.written] == [0, 1]
    writing.cancel()
