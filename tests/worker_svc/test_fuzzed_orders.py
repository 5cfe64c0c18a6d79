"""Orders made by their descriptors, and true ones damaged (K10): the worker takes them or leaves the link."""

from __future__ import annotations

import os
import random

from google.protobuf.message import DecodeError

from signalbox.v1.to_worker_pb2 import AttachWorkerResponse
from tests.contract.odd_messages import OddMessages
from tests.contract.odd_orders import cached, copies, starts, step, u16, u32
from tests.worker_svc.test_misfits import TERM, WAIT_S, Bench, new

SCALE = int(os.environ.get("SIGNALBOX_FUZZ", "1"))
SEEDS = 250
ORDERS = 6
COLUMNS = (
    b"",
    u16(0),
    u16(0, 1),
    u16(2),
    u16(0, 0),
    u32(0),
    u32(20),
    u32(20, 21),
    u32(10, 11, 20),
    u16(127, 128),
)
"""Bytes that mean slots, blocks, counts or lengths, wherever they stand."""
COLUMN_NAMES = (
    *("slots", "block_counts", "block_ids", "num_computed_tokens", "num_scheduled_tokens", "chunk_slots"),
    *("new_block_slots", "new_block_ids", "source_block_ids", "target_block_ids", "draft_slots"),
    *("finished_slots", "preempted_slots", "aside_slots", "paused_slots", "unpaused_slots"),
)
NUMBERS = {"step_id": (3, 4), "scheduler_epoch": (TERM,), "slot": (0, 2, 3, 127), "num_known_tokens": (5,)}
KNOWN = dict.fromkeys(COLUMN_NAMES, COLUMNS) | NUMBERS


def true_order(rng: random.Random, number: int) -> AttachWorkerResponse:
    """An order that fits the bench, some of the time."""
    begin = starts(2, counts=u32(2), blocks=u32(20, 21), at=u32(0), lengths=u32(5))
    orders = [
        step(TERM, number),
        step(TERM, number, **begin),
        step(TERM, number, **cached(new_block_slots=u16(0), new_block_ids=u32(22))),
        step(TERM, number, finished_slots=u16(0)),
        step(TERM, number, preempted_slots=u16(1)),
        step(TERM, number, block_copies=copies(10, 23)),
        AttachWorkerResponse(new_requests=[new(rng.randrange(3, 6))]),
    ]
    return rng.choice(orders)


def settle(bench: Bench, seed: int) -> None:
    """Waits until all is taken that the loop was given."""
    try:
        bench.loop.snapshot().result(WAIT_S)
    except TimeoutError:
        raise AssertionError(f"seed {seed} ended the worker: {bench.loop.failure}") from bench.loop.failure


def test_no_order_ends_a_worker_or_breaks_what_it_holds() -> None:
    num_taken = num_refused = 0
    for seed in range(SEEDS * SCALE):
        odd, bench = OddMessages(("order", seed), KNOWN), Bench()
        for _ in range(ORDERS):
            number = max(bench.core.last_step_id, 2) + 1
            order = true_order(odd.rng, number)
            if odd.rng.random() < 0.3:
                order = AttachWorkerResponse()
                odd.make(order)
            else:
                odd.damage(order)
            try:
                bench.loop.put(AttachWorkerResponse.FromString(odd.bytes_of(order)))
            except (ValueError, DecodeError):
                break
            settle(bench, seed)
        bench.loop.link_closed()
        settle(bench, seed)
        num_refused += not bench.refusals.empty()
        num_taken += bench.core.last_step_id > 2
        bench.close()
    assert num_taken > SEEDS / 20 and num_refused > SEEDS / 20
