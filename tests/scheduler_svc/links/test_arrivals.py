"""Hellos are taken in piece by piece, and whatever happens between two pieces loses and keeps nothing (W3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler_svc.core.recovery import snapshot as recovery
from scheduler_svc.core.recovery.adoption import Adoption
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.notices import Lost
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.links.arrivals import Arrivals
from scheduler_svc.links.worker_link import WorkerSession
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import DuplicateWorkerError, InternalError, SignalboxError
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, shared_pb2, to_worker_pb2
from tests.scheduler_svc.attached import MODEL, make_event, make_hello, make_report
from tests.scheduler_svc.blocks.test_snapshot_parts import make_slot

NUM_SLOTS = 4
NAMES = {f"r{number}" for number in range(NUM_SLOTS)}
NUM_PIECES = 2 * NUM_SLOTS
"""Of a hello with a slot in each: read, adopted; the last one takes the worker in."""


@pytest.fixture(autouse=True)
def _one_slot_in_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PIECE_SLOTS", 1)


class Stream:
    """A worker's stream: what is sent on it, and whether it was closed."""

    def __init__(self, ring: Ring, message: from_worker_pb2.AttachWorkerRequest) -> None:
        self.sent: list[to_worker_pb2.AttachWorkerResponse] = []
        self.num_closed = 0
        self.session = WorkerSession(ring.loop, message, self.sent.append, self._close)

    def _close(self) -> None:
        self.num_closed += 1

    @property
    def finished_slots(self) -> bytes:
        return b"".join(step.finished_slots for message in self.sent for step in message.steps)


class Ring:
    """A scheduler of term 7, and its turns: a piece of an arrival is one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[Callable[[], None]] = []
        config = SchedulerConfig(max_inflight_steps=1, max_num_batched_tokens=64)
        self.core = Scheduler(config, 7, 0.0, instance="ours")
        self.loop = StepLoop(self.core, lambda: self.now, lambda when, turn: self.turns.append(turn))
        hello = from_frontend_pb2.FrontendHello(
            frontend_instance="f",
            live=[shared_pb2.RequestRef(request_id=name, attempt=1) for name in sorted(NAMES)],
            workers=[shared_pb2.WorkerRef(worker_id="w")],
        )
        self.frontend = self.loop.attach_frontend(hello)

    def dial(self, **snapshot: Any) -> Stream:
        return Stream(self, make_big_hello(**snapshot))

    def go_on(self, num_turns: int = 100) -> None:
        while self.turns and num_turns:
            self.turns.pop(0)()
            self.core.check_integrity()
            num_turns -= 1

    def operate(self, **operation: Any) -> None:
        message = from_frontend_pb2.AttachFrontendRequest(
            operations=[from_frontend_pb2.FrontendOperation(**operation)]
        )
        self.loop.on_frontend(self.frontend, message)

    def lost(self) -> set[str]:
        told = self.frontend.outbox._items
        return {each.ref.request_id for message in told for each in message.lost}

    def names(self) -> set[str]:
        return {key.request_id for key in self.core.requests}


def make_big_hello(
    numbers: Iterator[int] | range = range(NUM_SLOTS), instance: str = "w-1", scheduler: str = "theirs"
) -> from_worker_pb2.AttachWorkerRequest:
    slots = [make_slot(number) for number in numbers]
    snapshot = from_worker_pb2.WorkerSnapshot(
        scheduler_epoch=1, last_step_id=5, slots=slots, scheduler_instance=scheduler
    )
    return make_hello("w", worker_instance=instance, snapshot=snapshot)


def submit(name: str) -> dict[str, Any]:
    meta = from_frontend_pb2.RequestMeta(model=MODEL, num_prompt_tokens=6, max_tokens=8)
    ref = shared_pb2.RequestRef(request_id=name, attempt=9)
    return {"submit": from_frontend_pb2.SubmitRequest(ref=ref, meta=meta)}


def test_nothing_is_sent_before_the_worker_is_taken_in_and_a_small_hello_is_at_once() -> None:
    ring = Ring()
    stream = ring.dial()
    for _ in range(NUM_PIECES - 1):
        assert not stream.sent and not ring.core.workers.get("w", _AWAY).attached
        ring.go_on(1)
    ring.go_on()
    assert stream.sent[0].scheduler_epoch == 7 and stream.sent[1].steps
    assert ring.names() == NAMES and not ring.lost()
    assert Stream(ring, make_hello("v")).sent[0].scheduler_epoch == 7 and not ring.turns


class _Away:
    attached = False


_AWAY: Any = _Away()


@pytest.mark.parametrize("cut", range(NUM_PIECES + 1))
@pytest.mark.parametrize("scheduler", ["theirs", "ours"])
def test_a_stream_that_ends_between_two_pieces_loses_nothing(cut: int, scheduler: str) -> None:
    """The adoption is carried to its end, and the worker is away. Its next hello is like any other."""
    ring = Ring()
    if scheduler == "ours":  # the requests are known here: a link of ours has ended
        first = ring.dial()
        ring.go_on()
        first.session.end()
    stream = ring.dial(scheduler=scheduler)
    ring.go_on(cut)
    stream.session.end()
    ring.go_on()
    ring.loop.tick()
    has_come = cut == NUM_PIECES
    assert bool(stream.sent) == has_come, "nobody reads it"
    assert not ring.lost()
    worker = ring.core.workers.get("w")
    assert worker is None or not (worker.attached or worker.is_arriving)
    again = ring.dial(scheduler=scheduler)
    ring.go_on()
    assert ring.names() == NAMES and not ring.lost() and again.sent[1].steps
    assert len(ring.core.workers["w"].requests()) == NUM_SLOTS


@pytest.mark.parametrize("cut", range(NUM_PIECES))
def test_a_newer_hello_waits_for_the_older_ones_end_and_takes_its_place(cut: int) -> None:
    """The older stream is closed, and no step is made for it. What it told of and the newer one does not is lost."""
    ring = Ring()
    older = ring.dial()
    ring.go_on(cut)
    newer = ring.dial(numbers=range(NUM_SLOTS - 1))
    assert older.num_closed == 1
    older.session.end()
    ring.go_on()
    assert not older.sent and newer.sent[1].steps
    assert ring.names() == NAMES - {"r3"} and ring.lost() == {"r3"}


@pytest.mark.parametrize("cut", [0, 3, NUM_PIECES - 1])
def test_another_process_is_refused_while_the_holder_arrives(cut: int) -> None:
    """H5."""
    ring = Ring()
    stream = ring.dial()
    ring.go_on(cut)
    with pytest.raises(DuplicateWorkerError):
        ring.dial(instance="w-2")
    ring.go_on()
    assert stream.sent and ring.names() == NAMES


@pytest.mark.parametrize("cut", range(NUM_PIECES))
@pytest.mark.parametrize("name", ["r0", "r3"])
def test_a_request_that_is_cancelled_between_two_pieces_is_released(cut: int, name: str) -> None:
    """Where its slot has come already and where it has not."""
    ring = Ring()
    stream = ring.dial()
    ring.go_on(cut)
    ring.operate(
        cancel=from_frontend_pb2.CancelRequest(ref=shared_pb2.RequestRef(request_id=name, attempt=1))
    )
    ring.go_on()
    assert ring.names() == NAMES - {name}
    slot = int(name[1:])
    assert stream.finished_slots == slot.to_bytes(2, "little")


@pytest.mark.parametrize("cut", range(NUM_PIECES))
def test_pausing_and_newer_attempts_between_two_pieces_hold(cut: int) -> None:
    """Requests that are known here, and whose slots have come or have not."""
    ring = Ring()
    first = ring.dial()
    ring.go_on()
    first.session.end()
    stream = ring.dial(scheduler="ours")
    ring.go_on(cut)
    ring.operate(pause=from_frontend_pb2.PauseRequest(ref=shared_pb2.RequestRef(request_id="r2", attempt=1)))
    ring.operate(**submit("r1"))
    ring.go_on()
    assert ring.names() == NAMES
    assert ring.core.requests[RequestKey("f", "r2")].client_paused
    assert ring.core.requests[RequestKey("f", "r1")].attempt == 9
    assert stream.finished_slots == b"\1\0" and not ring.lost()


def test_others_go_on_meanwhile_and_what_the_worker_says_waits() -> None:
    ring = Ring()
    other = Stream(ring, make_hello("v"))
    ring.operate(**submit("new"))
    stream = ring.dial()
    ring.go_on(NUM_SLOTS + 1)
    draining = make_event()
    draining.events.add().draining.SetInParent()
    assert stream.session.take(draining)
    num_steps = len(other.sent)
    assert other.session.take(make_report(1, num_prefill_tokens=6))
    assert len(other.sent) > num_steps and ring.core.workers["w"].is_arriving
    for _ in range(20):
        ring.now += 0.25
        ring.loop.tick()
    assert all(not message.ByteSize() for message in stream.sent) and len(stream.sent) >= 10, "we live (A4)"
    assert not ring.core.workers["w"].draining and not ring.lost()
    ring.go_on()
    assert ring.core.workers["w"].draining and ring.names() == {*NAMES, "new"} and not ring.lost()


@pytest.mark.parametrize("fails_at", range(NUM_SLOTS))
def test_an_adoption_that_fails_half_way_says_what_is_lost(
    fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours: the worker is away and is asked again, and its next hello is taken."""
    ring = Ring()
    first = ring.dial()
    ring.go_on()
    first.session.end()
    take, count = Adoption.take_some, 0

    def fail(adoption: Adoption, now: float) -> None:
        nonlocal count
        if count == fails_at:
            raise IndexError("a bug of ours")
        count += 1
        take(adoption, now)

    monkeypatch.setattr(Adoption, "take_some", fail)
    stream = ring.dial(scheduler="ours")
    ring.go_on()
    assert isinstance(stream.session.refusal, InternalError) and stream.num_closed == 1
    stream.session.end()
    ring.loop.tick()
    assert len(ring.names()) == fails_at and ring.lost() == NAMES - ring.names()
    monkeypatch.undo()
    ring.dial(scheduler="ours")
    ring.go_on()
    assert len(ring.names()) == fails_at
    ring.core.check_integrity()


def test_what_is_wrong_behind_the_first_piece_refuses_the_whole() -> None:
    ring = Ring()
    message = make_big_hello()
    message.hello.snapshot.slots.append(make_slot(1))
    stream = Stream(ring, message)
    ring.go_on()
    assert isinstance(stream.session.refusal, SignalboxError) and "twice" in str(stream.session.refusal)
    assert stream.num_closed == 1 and not ring.core.workers and not ring.names()
    assert not [notice for notice in ring.core.drain_notices() if isinstance(notice, Lost)]


def test_an_error_with_one_hello_holds_no_other_up() -> None:
    """LO1: not even where whoever is told of it fails, too."""
    soon, done = list[Callable[[], None]](), list[str]()
    arrivals = Arrivals(soon.append)

    def hello(name: str) -> Iterator[None]:
        yield
        if name == "bad":
            raise ValueError("a hello that contradicts itself")
        done.append(name)

    def refuse(error: Exception) -> None:
        raise RuntimeError("its stream is gone") from error

    for name in ("bad", "good", "better"):
        arrivals.put(hello(name), refuse)
    while soon:
        soon.pop(0)()
    assert done == ["good", "better"]
