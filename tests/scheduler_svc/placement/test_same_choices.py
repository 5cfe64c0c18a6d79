"""Q4, Q9: placement chooses as a plain search through all workers would, whatever they and the request are like."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.placement.choice import Choice
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepRecord, StepReport
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import FinishReason, WorkerRole
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.protocol.model_identity import ModelIdentity
from tests.scheduler_svc.harness import make_info, make_request
from tests.scheduler_svc.placement.plain_search import Comparison, Verdict, decide

IDENTITIES = [ModelIdentity("a"), ModelIdentity("b")]
NOW = 10.0


def chain(rng: random.Random, number: int, length: int) -> bytes:
    """Names of the blocks of a prompt; those of one number begin alike."""
    return b"".join(
        bytes([number, place % 256, place // 256]).ljust(HASH_BYTES, b".") for place in range(length)
    )


def make_ring(rng: random.Random) -> Scheduler:
    """Some workers, each in a state of its own, with loads that are often the same."""
    config = SchedulerConfig(affinity_min_tokens=8, prefill_hand_off="never", max_num_seqs=8)
    core = Scheduler(config, 1, 0.0)
    for number in range(rng.randint(1, 7)):
        fields: dict[str, Any] = {
            "worker_id": f"w{number}",
            "instance": f"i{number}",
            "address": f"w{number}:1",
            "kv_layout": "k",
            "model": "m" if rng.random() < 0.9 else "another",
            "block_size": 4 if rng.random() < 0.9 else 8,
            "num_blocks": 64,
            "serves_pooling": rng.random() < 0.8,
            "max_model_len": 1 << 20 if rng.random() < 0.9 else 64,
            "identity": IDENTITIES[rng.random() < 0.2],
            "role": rng.choice([WorkerRole.BOTH] * 4 + [WorkerRole.DECODE, WorkerRole.PREFILL]),
        }
        core.attach_worker(make_info(**fields), None, 0.0)
    for worker in core.workers.values():
        disturb(worker, rng)
    core.standings.forget()
    return core


def disturb(worker: Worker, rng: random.Random) -> None:
    """Puts a worker into some state, as far as placement asks for it."""
    table = worker.table
    table.num_running, table.num_preparing = rng.choice((0, 1, 2, 2, 3, 5, 8)), rng.choice((0, 0, 0, 1, 8))
    for number in range(rng.randint(0, 2)):
        names = np.frombuffer(chain(rng, number, rng.randint(1, 12)), HASH_DTYPE)
        blocks = worker.pool.take(len(names))
        worker.pool.publish(blocks, names)
        worker.pool.release(blocks)
    if rng.random() < 0.2:
        worker.pool.take(rng.randint(30, 64))
    if rng.random() < 0.1:
        table.free_slots.clear()
    if rng.random() < 0.1:
        table.requests[0] = make_request("waits", 4)
        table.preempted.append(0)
    empty = np.empty(0, np.int64)
    for number in range(rng.randint(0, 3)):
        worker.records.append(
            StepRecord(
                number, np.zeros(0, np.int32), empty, 0, False, [], 0, [], may_be_skipped=rng.random() < 0.2
            )
        )
    worker.draining, worker.vitals.has_left = rng.random() < 0.1, rng.random() < 0.1
    worker.attached = rng.random() < 0.95
    if rng.random() < 0.1:
        worker.vitals.unheard_by = frozenset({"f"})


def make_waiting(rng: random.Random) -> Request:
    """A request that waits, new or looked at before."""
    num_prompt = rng.choice((1, 8, 40, 70, 200))
    request = make_request(
        "r",
        num_prompt,
        hashes=chain(rng, rng.randint(0, 2), num_prompt // 4) if rng.random() < 0.6 else b"",
        identity=rng.choice(IDENTITIES).key,
        is_pooling=rng.random() < 0.1,
        has_grammar=rng.random() < 0.2,
        wants_prompt_logprobs=rng.random() < 0.05,
        output_identity=rng.choice([b"", b"", b"", IDENTITIES[0].key, IDENTITIES[1].key]),
    )
    if rng.random() < 0.3:
        request = replace(request, key=request.key._replace(frontend_instance="another"))
    affinity = request.affinity
    affinity.balanced_until = rng.choice((None, None, NOW + 0.1, NOW - 0.1))
    if rng.random() < 0.5:
        affinity.until = rng.choice((NOW + 0.02, NOW - 0.02))
        affinity.worker_id = rng.choice((None, "w0", "w3"))
        affinity.num_times_left = rng.choice((0, 15, 16))
    return request


def test_every_choice_in_every_state_is_the_same() -> None:
    outcomes: set[tuple[bool, ...]] = set()
    for seed in range(1_500):
        rng = random.Random(seed)
        core = make_ring(rng)
        worker = rng.choice(list(core.workers.values()))
        request = replace(make_waiting(rng), model=worker.info.model)
        continuation = core.admission.continuation
        if not worker.can_run(request) or not continuation.may_take(worker, request, NOW):
            continue
        expected = decide(core, worker, request, NOW)
        choice = Choice(worker, core.config, core.standings, continuation, NOW)
        taken = list(choice.candidates([request]))
        assert Verdict(bool(taken), request.affinity) == expected, f"seed {seed}"
        affinity = expected.affinity
        is_named = affinity.worker_id not in (None, worker.info.worker_id)
        outcomes.add((expected.takes, is_named, affinity.balanced_until is not None, request.has_grammar))
    assert len(outcomes) >= 12, "the states have become too easy"


def test_requests_that_are_looked_at_together_are_chosen_for_one_by_one() -> None:
    """Requests of another length, kind, prefix or patience do not get the choice of the one before."""
    num_taken = num_left = 0
    for seed in range(400):
        rng = random.Random(seed)
        core = make_ring(rng)
        worker = rng.choice(list(core.workers.values()))
        waiting = [replace(make_waiting(rng), model=worker.info.model) for _ in range(6)]
        choice = Choice(worker, core.config, core.standings, core.admission.continuation, NOW)
        with Comparison(core) as comparison:
            list(choice.candidates(waiting))
        num_taken, num_left = num_taken + comparison.num_taken, num_left + comparison.num_left
    assert num_taken > 300 and num_left > 300


def report(core: Scheduler, name: str, now: float, rng: random.Random) -> None:
    """The oldest step in flight went well; now and then a request has ended with it."""
    worker = core.workers[name]
    record = worker.records[0]
    finished = [
        (slot, int(FinishReason.STOP), int(worker.table.num_output[slot]) + 1)
        for slot in record.decode_slots.tolist()
        if rng.random() < 0.1 and worker.table.state[slot] == 2
    ]
    core.update(
        name,
        StepReport(record.step_id, record.num_decode_rows, record.num_prefill_tokens, finished=finished),
        now,
    )


@pytest.mark.parametrize("seed", range(3))
def test_every_choice_of_a_ring_at_work_is_the_same(seed: int) -> None:
    """Nothing is forgotten to be read again: starts, reports, ends, grammars, pauses, drains and ticks in any order."""
    rng, now = random.Random(seed), 0.0
    core = Scheduler(SchedulerConfig(max_num_seqs=6, affinity_min_tokens=8), 1, 0.0)
    names = [f"w{number}" for number in range(5)]
    for name in names:
        core.attach_worker(make_info(worker_id=name, instance=name, num_blocks=40), None, 0.0)
    requests: list[Request] = []
    with Comparison(core) as comparison:
        for number in range(1_500):
            now += rng.expovariate(100)
            name, kind = rng.choice(names), rng.random()
            worker = core.workers[name]
            if kind < 0.3 and core.num_waiting < 12:
                length = rng.randint(4, 40)
                hashes = chain(rng, rng.randint(0, 3), length // 4)
                request = make_request(f"r{number}", length, hashes=hashes, has_grammar=rng.random() < 0.1)
                requests.append(request)
                core.submit(request, now)
            elif kind < 0.35 and requests:
                core.cancel(rng.choice(requests).key, 1)
            elif kind < 0.38 and requests:
                core.set_paused(rng.choice(requests).key, 1, rng.random() < 0.3)
            elif kind < 0.39:
                core.drain_worker(name, rng.random() < 0.3, now)
            elif kind < 0.42:
                core.tick(now)
            elif kind < 0.7 and worker.records:
                report(core, name, now, rng)
            else:
                core.schedule(name, now)
            for slot in np.flatnonzero(worker.table.state == 5).tolist():
                if rng.random() < 0.2 and slot not in worker.table.prepared:
                    core.grammar_ready(name, slot, worker.request(slot).key.request_id, 1)
            core.check_integrity()
    assert comparison.num_taken > 100 and comparison.num_left > 50 and len(comparison.named) > 3
