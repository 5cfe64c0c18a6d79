"""What is drawn of hand-offs: when somebody wants which request where, and what goes wrong between workers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.ring.setup import Fault, Planned, RingSetup

if TYPE_CHECKING:
    from tests.simulation.ring.scenario import Profile

ORDERS = {"hand_over", "flip_role", "expect_drained"}
"""Kinds of "faults" that go wrong with nothing: somebody wants a request elsewhere, or looks."""
NEAR_S = 0.3
"""Faults that concern a hand-off begin so soon behind its order, mostly."""


def draw_handoffs(name: str, setup: RingSetup, profile: Profile, first_s: float) -> tuple[Fault, ...]:
    """Orders of a plot, and the faults that are aimed at them; `first_s`: nothing begins earlier."""
    rng = random.Random(f"{name} handoffs")
    if not profile.handoffs[1] or setup.num_workers < 2:
        return ()
    orders = []
    for _ in range(rng.randint(*profile.handoffs)):
        at = first_s + rng.uniform(0.05, profile.spread_s + 2.0)
        orders.append(Fault(at, "hand_over", (_worker(rng, setup),), 0.0, rng.random()))
    aimed = []
    for _ in range(rng.randint(*profile.aimed) if orders else 0):
        at = rng.choice(orders).at + rng.uniform(0.0, NEAR_S)
        aimed.append(_aimed(rng, setup, rng.choice(profile.aimed_kinds), at))
    return tuple(sorted((*orders, *aimed), key=lambda fault: fault.at))


def draw_rolling(name: str, setup: RingSetup, profile: Profile, first_s: float) -> tuple[Fault, ...]:
    """Each worker in turn is told to stop, and started again."""
    if not profile.is_rolling:
        return ()
    rng = random.Random(f"{name} rolling")
    at, faults = first_s + rng.uniform(0.1, 0.8), []
    workers = [f"w{number}" for number in range(setup.num_workers)]
    rng.shuffle(workers)
    for worker in workers:
        away_s = rng.uniform(0.3, 2.0)
        faults.append(Fault(at, "roll", (worker,), away_s))
        at += away_s + rng.uniform(0.3, 1.5)
    return tuple(faults)


def with_logprobs(rng: random.Random, requests: tuple[Planned, ...]) -> tuple[Planned, ...]:
    """Some of them ask for log-probabilities of their prompts, some for those of their outputs."""
    asking = []
    for planned in requests:
        asks, asks_of_prompt = rng.random() < 0.25, rng.random() < 0.15
        request = planned.request
        if not request.pooling and not request.is_nan:
            request = replace(request, logprobs=asks, prompt_logprobs=asks_of_prompt)
        asking.append(replace(planned, request=request))
    return tuple(asking)


def _worker(rng: random.Random, setup: RingSetup) -> str:
    return f"w{rng.randrange(setup.num_workers)}"


def _peers(rng: random.Random, setup: RingSetup) -> tuple[str, str]:
    first, second = rng.sample(range(setup.num_workers), 2)
    return f"w{first}", f"w{second}"


def _short_s(rng: random.Random) -> float:
    return rng.choice((rng.uniform(0.01, 0.3), rng.uniform(0.1, 1.5), rng.uniform(1.0, 6.0)))


def _aimed(rng: random.Random, setup: RingSetup, kind: str, at: float) -> Fault:
    """A fault that is likely to meet a hand-off under way."""
    if kind in ("cut_peers", "cut_peers_one_way", "reset_peers", "slow_peers"):
        real = {"cut_peers_one_way": "cut_one_way", "reset_peers": "reset_links"}.get(
            kind, kind[: -len("_peers")]
        )
        size = rng.uniform(0.02, 0.5) if kind == "slow_peers" else 0.0
        return Fault(at, real, _peers(rng, setup), _short_s(rng), size)
    if kind == "restart_scheduler":
        return Fault(at, "kill", ("s0",), rng.choice((rng.uniform(0.05, 0.5), rng.uniform(0.3, 4.0))))
    if kind == "part_worker":
        return Fault(at, "cut", (_worker(rng, setup), "s0"), _short_s(rng))
    if kind == "reset_worker":
        return Fault(at, "reset_links", (_worker(rng, setup), rng.choice(("s0", "f0"))))
    if kind == "safe_mode":
        return Fault(at, kind, (_worker(rng, setup),), _short_s(rng), rng.choice((-1.0, 0.0, 1.0)))
    if kind == "slow_steps":
        return Fault(at, kind, (_worker(rng, setup),), _short_s(rng), rng.choice((3.0, 10.0)))
    return Fault(at, kind, (_worker(rng, setup),), _short_s(rng))
