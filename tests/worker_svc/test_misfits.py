"""Steps and requests that no scheduler of ours sends are refused (K10), and the worker goes on with what it holds."""

from __future__ import annotations

import queue

import numpy as np
import pytest

from signalbox.v1 import generation_pb2, shared_pb2, to_worker_pb2
from signalbox.v1.to_worker_pb2 import AttachWorkerResponse
from tests.contract.odd_orders import TO_WORKERS, cached, copies, request, starts, step, u16, u32
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sim.model import SimRunner, continuation
from worker_svc.steps.loop import StepLoop, StepResult

INFO = RunnerInfo("sim", num_blocks=32, block_size=4, max_model_len=64, vocab_size=100, eos_token_ids=())
PROMPT = [5, 6, 7, 8, 9]
TERM, SLOTS, WAIT_S = 1, 128, 10
TO_HOLDERS = {
    "a block of another for a slot": step(TERM, 3, **cached(new_block_slots=u16(0), new_block_ids=u32(11))),
    "a start with a block of another": step(
        TERM, 3, **starts(2, counts=u32(2), blocks=u32(20, 11), at=u32(0), lengths=u32(5))
    ),
    "a start with a block twice": step(
        TERM, 3, **starts(2, counts=u32(2), blocks=u32(20, 20), at=u32(0), lengths=u32(5))
    ),
    "a start up to behind the prompt": step(
        TERM, 3, **starts(2, counts=u32(2), blocks=u32(20, 21), at=u32(0), lengths=u32(6))
    ),
    "a start behind its blocks": step(
        TERM, 3, **starts(2, counts=u32(1), blocks=u32(20), at=u32(0), lengths=u32(5))
    ),
    "a start of what runs": step(
        TERM, 3, **starts(0, counts=u32(2), blocks=u32(20, 21), at=u32(0), lengths=u32(5))
    ),
    "a copy onto a block of another": step(TERM, 3, block_copies=copies(20, 11)),
    "a request where another lives": request(slot=0),
}
"""Nothing is wrong with these but what slots 0 to 2 hold."""


class Bench:
    """A step loop with two requests that decode, in blocks 10, 11 and 12, 13, and one in slot 2 that has not begun."""

    def __init__(self) -> None:
        self.results: queue.SimpleQueue[StepResult] = queue.SimpleQueue()
        self.refusals: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.core = WorkerCore(INFO, num_slots=SLOTS)
        self.loop = StepLoop(self.core, SimRunner(INFO), self.results.put, self.refusals.put)
        self.loop.start()
        self.tokens: dict[int, list[int]] = {1: [], 2: []}
        self.loop.greeted(TERM, "s")
        begin = starts(0, 1, counts=u32(2, 2), blocks=u32(10, 11, 12, 13), at=u32(0, 0), lengths=u32(5, 5))
        self.loop.put(AttachWorkerResponse(new_requests=[new(slot) for slot in range(3)]))
        self.loop.put(step(TERM, 1, **begin))
        self.loop.put(step(TERM, 2))
        self.take(2)

    def take(self, count: int) -> None:
        """Waits for the outputs of so many steps."""
        for _ in range(count):
            for output in self.results.get(timeout=WAIT_S).outputs:
                for attempt, token in zip(output.attempts.tolist(), output.token_ids.tolist(), strict=True):
                    self.tokens[attempt].append(token)

    def close(self) -> None:
        self.loop.stop(WAIT_S)
        self.core.table.check_integrity()
        assert self.loop.failure is None


def new(slot: int) -> to_worker_pb2.NewRequestData:
    payload = generation_pb2.RequestPayload(token_ids=np.array(PROMPT, "<i4").tobytes())
    return to_worker_pb2.NewRequestData(
        slot=slot,
        ref=shared_pb2.RequestRef(request_id=f"r{slot}", attempt=slot + 1),
        frontend_instance="f",
        num_known_tokens=len(PROMPT),
        max_tokens=8,
        payload=payload.SerializeToString(),
    )


ORDERS = {name: make(TERM, 3) for name, make in TO_WORKERS.items()} | TO_HOLDERS


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_that_fits_no_worker_ends_the_link_alone(name: str) -> None:
    """K10, C1: nothing more is taken by the link; behind a new one all goes on, with the right tokens."""
    bench = Bench()
    try:
        bench.loop.put(ORDERS[name])
    except ValueError:
        pass  # so the link learns of it at once
    else:
        assert bench.refusals.get(timeout=WAIT_S)
        bench.loop.put(step(TERM, 3, finished_slots=u16(0, 1)))
    bench.loop.link_closed()
    bench.loop.snapshot().result(WAIT_S)
    assert bench.refusals.empty() and bench.core.held_slots() == [0, 1, 2]
    bench.loop.greeted(TERM, "s")
    last = bench.core.last_step_id
    bench.loop.put(AttachWorkerResponse(steps=[*step(TERM, last + 1).steps, *step(TERM, last + 2).steps]))
    while not all(len(tokens) >= 4 for tokens in bench.tokens.values()):
        bench.take(1)
    bench.close()
    for tokens in bench.tokens.values():
        assert tokens == continuation(PROMPT, len(tokens), INFO.vocab_size)


def test_a_block_that_the_step_itself_frees_may_be_given_away() -> None:
    """K2."""
    bench = Bench()
    begin = starts(2, counts=u32(2), blocks=u32(11, 10), at=u32(0), lengths=u32(5))
    bench.tokens[3] = []
    bench.loop.put(step(TERM, 3, finished_slots=u16(0), **begin))
    bench.take(1)
    bench.close()
    assert bench.refusals.empty() and bench.tokens[3] == continuation(PROMPT, 1, INFO.vocab_size)


def test_what_waits_for_its_turn_is_bounded() -> None:
    loop = StepLoop(
        WorkerCore(INFO, num_slots=SLOTS), SimRunner(INFO), lambda result: None, lambda reason: None
    )
    flood = AttachWorkerResponse(new_requests=[to_worker_pb2.NewRequestData(payload=bytes(1 << 20))] * 8)
    with pytest.raises(ValueError, match="128 MiB wait"):  # the thread does not run
        for _ in range(32):
            loop.put(flood)
