"""Rings with room for all, in which the scheduler and a worker die at about the same time: the next scheduler has never
met the worker. What is looked at is how long streams stand still (docs/design.md, J13)."""

from __future__ import annotations

import random

from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.setup import Fault, Planned, Plot, RingSetup

MOST_GAP_S = 2.8
"""Longest time for which a stream may stand still: until there is a scheduler, until it is told, or believes a refusal,
and until another worker has computed the tokens anew."""
NUM_WORKERS = 3
AWAY_S = 0.4
"""Longest time without a scheduler."""
DIES_S = (-0.1, 0.9)
"""When the worker dies, from the scheduler's death on. Its hello to the next one may be on its way by then."""
LATE_S = 0.6
"""Longest time that what goes between the worker and the scheduler takes."""
ORDERS_PER_S = 8.0


def draw_together(name: str, first_s: float) -> Plot:
    """Scheduler and worker die. In half of these another worker does not reach the next scheduler for a while, and in
    the other half requests are handed over until then. `first_s`: nothing begins earlier."""
    rng = random.Random(name)
    num_frontends, has_handoffs = rng.choice((1, 1, 2)), rng.random() < 0.5
    setup = RingSetup(
        num_workers=NUM_WORKERS,
        num_frontends=num_frontends,
        num_blocks=2000,
        num_slots=24,
        max_model_len=600,
        vocab_size=1000,
        max_draft_tokens=rng.choice((0, 0, 2)),
        step_s=(0.03, 0.12),
        restart_s=(0.05, 0.3),
        move_s=rng.choice((0.02, 0.2)),
        guardians=rng.choice((0.0, 1.0)),
        scheduler={"max_num_seqs": 24, "max_num_batched_tokens": 400},
    )
    requests = tuple(
        Planned(first_s + rng.uniform(0.0, 1.0), rng.randrange(num_frontends), _request(rng, f"q{number}"))
        for number in range(rng.randint(5, 10))
    )
    dies_at = first_s + rng.uniform(1.5, 3.0)
    worker, other = (f"w{number}" for number in rng.sample(range(NUM_WORKERS), 2))
    faults = [
        Fault(dies_at - 0.2, "slow", (worker, "s0"), 4.0, rng.uniform(0.1, LATE_S)),
        Fault(dies_at, "kill", ("s0",), rng.uniform(0.05, AWAY_S)),
        Fault(dies_at + rng.uniform(*DIES_S), "kill", (worker,), 20.0),
    ]
    if not has_handoffs:
        faults.append(Fault(dies_at - 0.1, "cut", (other, "s0"), rng.uniform(5.0, 8.0)))
    at = first_s + 1.0
    while has_handoffs and at < dies_at:
        faults.append(Fault(at, "hand_over", (f"w{rng.randrange(NUM_WORKERS)}",), 0.0, rng.random()))
        at += rng.expovariate(ORDERS_PER_S)
    by_time = tuple(sorted(faults, key=lambda fault: fault.at))
    return Plot(name, setup, requests, by_time, check_every=149, warm_up_s=first_s, most_gap_s=MOST_GAP_S)


def _request(rng: random.Random, name: str) -> RingRequest:
    prompt = tuple(rng.randrange(900) for _ in range(rng.randint(2, 40)))
    return RingRequest(name, prompt, rng.randint(120, 200), seed=rng.randrange(1000))
