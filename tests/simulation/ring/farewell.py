"""Rings in which a worker is told to stop while requests come all the time, and the path to it takes its time."""

from __future__ import annotations

import random

from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.setup import Fault, Planned, Plot, RingSetup

MOST_DELAY_S = 0.1
"""Each way: the scheduler's word that it knows of the drain comes within `DRAIN_TAKEN_S`."""
LASTS_S = 4.0


def draw_farewell(name: str, first_s: float) -> Plot:
    """Short requests, so that the worker is often empty, and a SIGTERM with time to drain; `first_s`: nothing begins
    earlier."""
    rng = random.Random(name)
    setup = RingSetup(
        num_workers=2,
        num_blocks=2000,
        num_slots=24,
        max_model_len=600,
        step_s=(0.003, 0.03),
        restart_s=(0.05, 0.3),
        scheduler={"max_num_seqs": 24, "max_num_batched_tokens": 400},
        worker={"drain_s": 20.0},
    )
    requests = tuple(
        Planned(first_s + rng.uniform(0.0, LASTS_S), 0, _request(rng, f"q{number}"))
        for number in range(rng.randint(20, 60))
    )
    told_at = first_s + rng.uniform(0.5, LASTS_S - 1.0)
    slow = Fault(first_s, "slow", ("s0", "w0"), LASTS_S, MOST_DELAY_S)
    told = Fault(told_at, "roll", ("w0",), 0.3)
    return Plot(name, setup, requests, (slow, told), check_every=149, warm_up_s=first_s, loses_nothing=True)


def _request(rng: random.Random, name: str) -> RingRequest:
    prompt = tuple(rng.randrange(900) for _ in range(rng.randint(2, 20)))
    return RingRequest(name, prompt, rng.randint(1, 6), seed=rng.randrange(1000))
