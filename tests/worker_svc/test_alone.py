"""A worker whose scheduler is gone goes on by itself (docs/liveness.md, A1 to A6): its step loop in a thread, and what
its clients get."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.state.requests.request import RequestKey
from signalbox.protocol.enums import FinishReason
from signalbox.v1 import from_worker_pb2, worker_pb2
from tests.worker_svc.drafting.local_ring import FRONTEND, Client
from tests.worker_svc.lone_ring import LoneRing
from tests.worker_svc.threaded_ring import ThreadedSimRunner
from worker_svc.core.batch import ModelRunner, RunnerInfo
from worker_svc.runner.sim.failures import SimFailures
from worker_svc.runner.sim.model import SimDrafter, SimRunner, SimTiming, continuation

VOCAB = 200
INFO = RunnerInfo("sim", 400, 4, 256, VOCAB, eos_token_ids=())
TIMING = SimTiming(base_ms=1.0)
KINDS = pytest.mark.parametrize("kind", [SimRunner, ThreadedSimRunner])
"""One step at a time, and running ahead."""


@contextmanager
def lone_ring(runner: ModelRunner, **options: Any) -> Iterator[LoneRing]:
    ring = LoneRing(runner, **options)
    try:
        yield ring
    finally:
        ring.close()


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(count)
    return [[rng.randrange(VOCAB) for _ in range(rng.randrange(3, 20))] for _ in range(count)]


def started(ring: LoneRing, count: int, max_tokens: int) -> list[Client]:
    """Clients that have had some tokens each."""
    clients = [ring.submit(prompt, max_tokens) for prompt in prompts(count)]
    while not all(len(client.output) >= 3 for client in clients):
        ring.step()
    return clients


def assert_whole(clients: list[Client], max_tokens: int) -> None:
    for client in clients:
        assert client.output == continuation(client.prompt, max_tokens, VOCAB)
        assert client.ends == [FinishReason.LENGTH]


@KINDS
def test_tokens_alone_are_those_with_a_scheduler(kind: type[SimRunner]) -> None:
    """A2, A3: rows go on with lent blocks to their ends, and another scheduler is told what was written."""
    with lone_ring(kind(INFO, TIMING)) as ring:
        clients = started(ring, 6, 60)
        ring.lend(200)
        ring.lose_scheduler()
        ring.run_alone(20)
        assert not any(client.ends for client in clients)
        snapshot = ring.find_scheduler()
        assert snapshot.last_step_id == snapshot.last_scheduled_step_id + ring.num_own
        taken = np.frombuffer(snapshot.blocks_written_alone, "<u4").tolist()
        held = {block for slot in snapshot.slots for block in np.frombuffer(slot.block_ids, "<u4").tolist()}
        assert taken and len(set(taken)) == len(taken) and set(taken) <= held
        assert snapshot.scheduler_instance == "s1"
        ring.run()
    assert_whole(clients, 60)


@KINDS
def test_rows_without_a_lent_block_rest_and_go_on_with_a_scheduler(kind: type[SimRunner]) -> None:
    """A3: nothing is lent, so each row ends its block and no more."""
    with lone_ring(kind(INFO, TIMING)) as ring:
        clients = started(ring, 5, 40)
        ring.lose_scheduler()
        ring.rest_alone()
        assert not any(client.ends for client in clients)
        assert all((len(client.prompt) + len(client.output) - 1) % 4 == 0 for client in clients)
        ring.find_scheduler()
        ring.run()
    assert_whole(clients, 40)


def test_what_ends_alone_is_told_to_its_frontend_once_and_to_the_next_scheduler() -> None:
    """A2: and the other way round, nothing new is started."""
    with lone_ring(SimRunner(INFO, TIMING)) as ring:
        clients = started(ring, 4, 30)
        ring.lend(300)
        ring.lose_scheduler()
        ring.rest_alone()
        assert_whole(clients, 30)
        snapshot = ring.find_scheduler()
        assert {slot.status for slot in snapshot.slots} == {from_worker_pb2.SLOT_STATUS_ENDED}
        more = ring.submit(prompts(1)[0], 5)
        ring.run()
        assert_whole([more], 5)
        assert all(len(client.ends) == 1 for client in clients)


@KINDS
def test_schedulers_come_and_go_again_and_again(kind: type[SimRunner]) -> None:
    """A1, A4: also in the middle of a hello, which then counts for nothing."""
    rng = random.Random(7)
    with lone_ring(kind(INFO, TIMING)) as ring:
        clients = started(ring, 6, 150)
        for _ in range(8):
            ring.lend(rng.choice((0, 10, 100)))
            ring.lose_scheduler()
            for _ in range(rng.randrange(8)):
                ring.take_alone(timeout_s=0.05)
            if rng.random() < 0.5:
                first = ring.snapshot()
                ring.lose_scheduler()
                for _ in range(rng.randrange(8)):
                    ring.take_alone(timeout_s=0.05)
                second = ring.snapshot()
                assert (
                    second.blocks_written_alone[: len(first.blocks_written_alone)]
                    == first.blocks_written_alone
                )
                ring.lose_scheduler()
            ring.find_scheduler()
            for _ in range(rng.randrange(1, 10)):
                if not all(client.ends for client in clients):
                    ring.step()
        ring.run()
    assert_whole(clients, 150)


def test_what_a_closed_link_brought_and_nobody_took_is_dropped() -> None:
    """A1: a step of the old link behind the first own one would be a second author."""
    with lone_ring(SimRunner(INFO, SimTiming(base_ms=30.0)), depth=4) as ring:
        (client,) = started(ring, 1, 60)
        ring.lend(100)
        ring.send()
        ring.lose_scheduler()
        ring.run_alone(3)
        snapshot = ring.find_scheduler()
        assert snapshot.last_scheduled_step_id < snapshot.last_step_id
        ring.run()
        assert not ring.refused
    assert_whole([client], 60)


def test_a_prefill_that_has_all_its_blocks_goes_on_alone() -> None:
    """A2: in chunks of the worker's own."""
    info = RunnerInfo("sim", 400, 4, 1200, VOCAB, eos_token_ids=())
    with lone_ring(SimRunner(info, TIMING), num_seqs=4) as ring:
        prompt = [n % VOCAB for n in range(900)]
        client = ring.submit(prompt, 20)
        for _ in range(3):
            ring.step()
        assert not client.output
        ring.lend(50)
        ring.lose_scheduler()
        ring.rest_alone()
        assert client.output == continuation(prompt, 20, VOCAB)
        assert client.ends == [FinishReason.LENGTH]
        ring.find_scheduler()


@KINDS
def test_drafts_go_on_alone(kind: type[SimRunner]) -> None:
    """A2: with blocks for them where enough are lent; nobody has to confirm a limit."""
    info = replace(INFO, max_draft_tokens=3)
    with lone_ring(kind(info, TIMING), drafter=SimDrafter(VOCAB, 0.8), num_drafts=3) as ring:
        clients = started(ring, 5, 200)
        ring.lend(250)
        ring.lose_scheduler()
        before = sum(client.num_accepted for client in clients)
        ring.run_alone(20)
        assert sum(client.num_accepted for client in clients) > before
        ring.find_scheduler()
        ring.run()
    assert_whole(clients, 200)


CANCEL, FINISH, PAUSE, UNPAUSE = (
    worker_pb2.ATTEMPT_ACTION_CANCEL,
    worker_pb2.ATTEMPT_ACTION_FINISH,
    worker_pb2.ATTEMPT_ACTION_PAUSE,
    worker_pb2.ATTEMPT_ACTION_UNPAUSE,
)


@KINDS
def test_clients_are_obeyed_by_attempt_while_there_is_no_scheduler(kind: type[SimRunner]) -> None:
    """A6: orders given before the link ended count as well; an end is told to nobody, and to the next scheduler."""
    with lone_ring(kind(INFO, TIMING)) as ring:
        clients = started(ring, 5, 200)
        cancelled, finished, paused, toggled, other = clients
        ring.order(cancelled, CANCEL)
        for _ in range(5):
            ring.step()
        assert len(cancelled.output) > 3, "there was a scheduler"
        ring.lend(300)
        ring.lose_scheduler()
        ring.order(finished, FINISH)
        ring.order(paused, PAUSE)
        ring.order(toggled, PAUSE)
        ring.order(toggled, UNPAUSE)
        before = [len(client.output) for client in clients]
        ring.run_alone(40)
        grown = [len(client.output) - count for client, count in zip(clients, before, strict=True)]
        assert max(grown[:3]) <= 4 and min(grown[3:]) >= 30
        assert not any(client.ends for client in clients)
        cancelled.ends.append(0)
        finished.ends.append(0)
        snapshot = ring.find_scheduler()
        reasons = ring.core.table.finish_reasons
        ended = {slot.ref.attempt: reasons[slot.slot] for slot in snapshot.slots if slot.status == 5}
        assert ended == {
            ring.attempt_of(cancelled): FinishReason.ABORT,
            ring.attempt_of(finished): FinishReason.STOP,
        }
        assert [slot.paused for slot in snapshot.slots if slot.ref.attempt == ring.attempt_of(paused)] == [
            True
        ]
        ring.run()
    assert_whole([paused, toggled, other], 200)


def test_orders_are_forgotten_when_a_scheduler_has_greeted() -> None:
    """A6: from then on it says what clients want."""
    with lone_ring(SimRunner(INFO, TIMING)) as ring:
        clients = started(ring, 2, 120)
        ring.order(clients[0], CANCEL)
        ring.find_scheduler()
        for _ in range(5):
            ring.step()
        ring.lend(200)
        ring.lose_scheduler()
        ring.rest_alone()
    assert_whole(clients, 120)


def test_a_worker_that_was_never_greeted_does_nothing() -> None:
    with lone_ring(SimRunner(INFO, TIMING)) as ring:
        ring.loop.give_up()
        ring.lose_scheduler()
        assert ring.loop.snapshot().result(10) is None
        assert not ring.loop.is_alone


def test_all_is_given_up_when_no_scheduler_takes_it() -> None:
    """A4: the next hello has no snapshot, and a scheduler begins anew."""
    with lone_ring(SimRunner(INFO, TIMING)) as ring:
        started(ring, 3, 60)
        ring.lose_scheduler()
        ring.loop.give_up()
        assert ring.loop.snapshot().result(10) is None
        assert ring.core.held_slots() == [] and ring.core.last_step_id == 0
        while ring.take_alone(timeout_s=0):
            pass


def test_a_loan_shrinks_with_what_steps_name() -> None:
    """A3: a block that a step of the scheduler names is lent no more, whether it is granted or begins a request."""
    with lone_ring(SimRunner(INFO, TIMING)) as ring:
        started(ring, 2, 60)
        ring.lend(400)
        lent = len(ring.core.loan)
        ring.submit(prompts(3)[2], 40)
        for _ in range(6):
            ring.step()
        ring.settle()
        table, loan = ring.core.table, ring.core.loan
        held = {block for slot in range(4) for block in table.blocks[slot, : table.num_blocks[slot]].tolist()}
        assert len(loan) < lent
        assert not loan.lends(list(held)).any()
        ring.run()


@KINDS
def test_rows_that_were_set_aside_for_a_suspect_go_on_and_the_suspect_rests(kind: type[SimRunner]) -> None:
    """A2, S2: its scheduler dies behind a step of the suspect's own."""
    with lone_ring(kind(INFO, TIMING)) as ring:
        clients = started(ring, 4, 60)
        ring.lend(200)
        suspect = ring.submit([7] * 200, 20)
        key = RequestKey(FRONTEND, f"r{ring.attempt_of(suspect)}")
        ring.scheduler.requests[key].num_crashes = 1
        ring.scheduler.register.suspects[key] = ring.scheduler.requests[key]
        while not (ring.worker.records and ring.worker.records[-1].is_solo):
            ring.take()
            ring.send()
        ring.settle()
        ring.lose_scheduler()
        ring.run_alone(20)
        assert not suspect.output, "it would run beside the others"
        before = [len(client.output) for client in clients]
        assert min(before) >= 15
        ring.find_scheduler()
        ring.run()
    assert_whole(clients, 60)
    assert_whole([suspect], 20)


def test_a_snapshot_says_what_has_failed_for_its_numbers_while_nobody_heard_it() -> None:
    """N2, A2: its first chunk was published, the second has a NaN."""
    prompt = [*range(150), 199]
    with lone_ring(SimRunner(INFO, TIMING, SimFailures(nan_token=199))) as ring:
        ring.submit(prompt, 20)
        ring.step()
        ring.lose_scheduler()
        ring.rest_alone()
        snapshot = ring.snapshot()
    assert [(slot.status, slot.withdrawn) for slot in snapshot.slots] == [
        (from_worker_pb2.SLOT_STATUS_ENDED, True)
    ]
