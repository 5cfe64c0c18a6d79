"""Rings with room for all, in which one path goes silent while requests are handed over: it does not break, and nobody
is told. What is looked at is how long streams stand still."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.simulation.ring.clock import current_process
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.rules import note
from tests.simulation.ring.setup import Fault, Planned, Plot, RingSetup
from worker_svc.steps.handoff_coordinator import HandoffCoordinator
from worker_svc.transfer.control import target
from worker_svc.transfer.control.source import TransferSource
from worker_svc.transfer.control.target import TransferTarget

if TYPE_CHECKING:
    from tests.simulation.ring.client import Client

PATHS = {
    "peers": 2.9,
    "frontend": 1.0,
    "worker": 3.0,
    "outputs": 3.8,
}
"""Kinds of paths, each with the longest time in seconds for which a stream may stand still when it is silent: between
two workers, a frontend and the scheduler, a worker and the scheduler, a frontend and a worker."""
ORDERS_PER_S = (5.0, 20.0)
MOST_IMPORT_S = 8.5
"""Longest time for which a worker may try to read from another: to reach it, to notice its silence, and some to
spare."""


_RUN, _HELLO_OF, _TAIL = TransferTarget._run, target.hello_of, TransferSource._tail
_GO_ON = HandoffCoordinator.go_on


def draw_silence(name: str, path: str, first_s: float) -> Plot:
    """One silent path of a kind, and hand-offs before and while it is; `first_s`: nothing begins earlier."""
    rng = random.Random(name)
    num_workers, num_frontends = rng.choice((2, 2, 3)), rng.choice((1, 1, 2))
    setup = RingSetup(
        num_workers=num_workers,
        num_frontends=num_frontends,
        num_blocks=2000,
        num_slots=24,
        max_model_len=600,
        vocab_size=1000,
        max_draft_tokens=rng.choice((0, 0, 2)),
        step_s=(0.03, 0.12),
        restart_s=(0.05, 0.3),
        move_s=rng.choice((0.0, 0.02, 0.2)),
        has_beats=rng.random() < 0.7,
        scheduler={
            "max_num_seqs": 24,
            "max_num_batched_tokens": 400,
            "max_inflight_steps": rng.choice((1, 2)),
        },
    )
    requests = tuple(
        Planned(first_s + rng.uniform(0.0, 1.0), rng.randrange(num_frontends), _request(rng, f"q{number}"))
        for number in range(rng.randint(4, 10))
    )
    silent_at, lasts_s = first_s + rng.uniform(1.5, 4.0), rng.uniform(6.0, 14.0 if path == "peers" else 9.0)
    kind = rng.choice(("cut", "cut_one_way"))
    silent = Fault(silent_at, kind, _hosts(rng, path, num_workers, num_frontends), lasts_s)
    orders, at, every_s = [], first_s + 1.0, 1.0 / rng.uniform(*ORDERS_PER_S)
    while at < silent_at + lasts_s:
        worker = f"w{rng.randrange(num_workers)}"
        orders.append(Fault(at, "hand_over", (worker,), 0.0, rng.random()))
        at += rng.expovariate(1.0 / every_s)
    faults = tuple(sorted((silent, *orders), key=lambda fault: fault.at))
    return Plot(name, setup, requests, faults, check_every=149, warm_up_s=first_s, most_gap_s=PATHS[path])


def _request(rng: random.Random, name: str) -> RingRequest:
    prompt = tuple(rng.randrange(900) for _ in range(rng.randint(2, 40)))
    return RingRequest(name, prompt, rng.randint(120, 200), seed=rng.randrange(1000))


def _hosts(rng: random.Random, path: str, num_workers: int, num_frontends: int) -> tuple[str, str]:
    """The ends of the path, in any order."""
    worker, other = (f"w{number}" for number in rng.sample(range(num_workers), 2))
    frontend = f"f{rng.randrange(num_frontends)}"
    ends = {
        "peers": (worker, other),
        "frontend": (frontend, "s0"),
        "worker": (worker, "s0"),
        "outputs": (frontend, worker),
    }[path]
    return ends if rng.random() < 0.5 else ends[::-1]


def tail_watched(source: Any, export: Any, num_state_bytes: int) -> Any:
    """As `TransferSource._tail`, and notes that it is made."""
    node = current_process().node
    node.watch.tail_made(export.slot, export.ref.attempt)
    return _TAIL(source, export, num_state_bytes)


def go_on_watched(coordinator: Any, kept: Any) -> bool:
    """As `HandoffCoordinator.go_on`, and notes it."""
    if has_gone_on := _GO_ON(coordinator, kept):
        current_process().node.watch.goes_on_alone(kept.export.slot)
    return has_gone_on


async def read_watched(reader: Any, reading: Any) -> None:
    """As `TransferTarget._run`, and looks how long it takes."""
    process = current_process()
    ring, began_at = process.node.ring, process.world.now
    try:
        await _RUN(reader, reading)
    finally:
        took_s = process.world.now - began_at
        if ring.plot.most_gap_s and process.node.setup.has_beats and took_s > _most_import_s(ring.plot):
            note(f"transfer {reading.found.request.transfer} was read for {took_s:.1f} s (HO19)")


def _most_import_s(plot: Plot) -> float:
    """Who does not hear the scheduler may wait for its blocks, or its end, as long as that."""
    silence_s = max((fault.lasts_s for fault in plot.faults), default=0.0)
    return MOST_IMPORT_S + (silence_s if plot.most_gap_s == PATHS["worker"] else 0.0)


def hello_watched(*given: Any, **named: Any) -> Any:
    """As `hello_of`; of a worker of an earlier release, perhaps."""
    hello = _HELLO_OF(*given, **named)
    hello.beats = current_process().node.setup.has_beats
    return hello


def stands_too_long(plot: Plot, client: Client) -> str:
    """The finding that a stream has stood still for longer than the plot allows; empty: it has not."""
    if not plot.most_gap_s or client.gap_s <= plot.most_gap_s:
        return ""
    return f"{client}: stood still for {client.gap_s:.2f} s, of {plot.most_gap_s:.2f} at most"
