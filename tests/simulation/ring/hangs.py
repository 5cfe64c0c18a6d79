"""Rings in which a step hangs, or only takes long: who computes a request that hangs is ended, and nobody else is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.ring.model import HANGING
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.setup import Fault, Planned, Plot, RingSetup

if TYPE_CHECKING:
    from tests.simulation.ring.client import Client

KINDS = ("request", "long", "stopped", "compiled")
"""What happens: a request hangs whoever computes it; the same, behind a long step on each worker; a worker is stopped
for longer than a step may take; a step has a kernel compiled for as long."""
MOST_GAP_S = 7.0
"""Longest time for which a stream may stand still beside a request that hangs its worker: the limit of a step, two
looks, and its turn among all suspects, each of which has a step of up to STEP_S of its own."""
MOST_CULPRIT_S = 16.0
"""Within which a request that hangs two workers has ended."""
STEP_S = 0.12


def draw_hang(name: str, kind: str, first_s: float) -> Plot:
    """A ring in which something of a kind happens; `first_s`: nothing begins earlier."""
    rng = random.Random(name)
    num_workers = rng.choice((2, 3))
    setup = RingSetup(
        num_workers=num_workers,
        num_frontends=rng.choice((1, 2)),
        num_blocks=2000,
        num_slots=24,
        max_model_len=600,
        max_draft_tokens=rng.choice((0, 0, 2)),
        runs_ahead=False,
        step_s=(0.03, STEP_S),
        restart_s=(0.05, 0.3),
        scheduler={
            "max_num_seqs": 24,
            "max_num_batched_tokens": 400,
            "max_inflight_steps": rng.choice((1, 2)),
        },
    )
    planned = [
        Planned(first_s + rng.uniform(0.0, 1.0), rng.randrange(setup.num_frontends), _innocent(rng, number))
        for number in range(rng.randint(4, 8))
    ]
    faults, at = list[Fault](), first_s + rng.uniform(3.5, 5.0)
    if kind in ("request", "long"):
        prompt = (HANGING, *(rng.randrange(900) for _ in range(rng.randint(0, 2))))
        planned.append(Planned(at, 0, RingRequest("odd", prompt, 5, is_hanging=True)))
    if kind == "long":
        faults += [Fault(at - 1.5, "hang", (f"w{number}",), 1.2) for number in range(num_workers)]
    elif kind == "stopped":
        faults.append(Fault(at, "freeze", (f"w{rng.randrange(num_workers)}",), rng.uniform(6.0, 9.0)))
    elif kind == "compiled":
        faults.append(Fault(at, "compile", (f"w{rng.randrange(num_workers)}",), rng.uniform(6.0, 15.0)))
    return Plot(name, setup, tuple(planned), tuple(faults), check_every=149, warm_up_s=first_s)


def _innocent(rng: random.Random, number: int) -> RingRequest:
    prompt = tuple(rng.randrange(900) for _ in range(rng.randint(2, 20)))
    return RingRequest(f"q{number}", prompt, rng.randint(120, 200), seed=rng.randrange(1000))


def hangs_too_long(client: Client) -> str:
    """The finding that a client beside a request that hangs, or that request's own, has waited for too long; empty: it
    has not."""
    ring = client.ring
    if not ring.num_to_hang:
        return ""
    if client.request.is_hanging:
        took_s = client.ended_at - client.began_at
        return f"{client}: ended after {took_s:.1f} s" if took_s > MOST_CULPRIT_S else ""
    if client.gap_s > MOST_GAP_S:
        return f"{client}: stood still for {client.gap_s:.2f} s beside a request that hangs"
    return ""
