"""Rings in which one worker cannot read from another: who drains goes elsewhere, and comes back to the pair when it is
well again (docs/design.md, HO21). What is looked at is when policies begin hand-offs, and what is left in the end; and,
in rings in which nothing comes between workers, that no failure counts against a pair."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from scheduler_svc.core.moves.desk import HandoffDesk
from tests.simulation.ring.automaton import Rule
from tests.simulation.ring.clock import current_process
from tests.simulation.ring.handoffs import ORDERS
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.rules import note
from tests.simulation.ring.setup import Fault, Planned, Plot, RingSetup

FIRST_S, MOST_S = 1.0, 60.0
"""For how long a pair is left out at least: after the first failure, and after many."""
BESIDE_S = {"refuse_between": 8.0, "cut": 13.0, "cut_one_way": 13.0}
"""Time within which a worker is drained where one of two others can read from it, by what is wrong with the other."""
AFTER_S = 16.0
"""Time within which a worker is drained after the only other one can read from it again."""
NEAR_S = 1e-6
UNHEARD_S = 2.5
"""A hand-off begins of no request whose frontend was not heard for so long (HO20): it is silent after 1.5 s, and may
have been heard again."""
CASES = ("beside", "alone")
CALM_KINDS = ORDERS | {"drain"}
PATH_KINDS = {"cut", "cut_one_way", "reset_links", "slow"}
_STOP, _BEGIN, _HAND_OVER, _COMMIT = (
    HandoffDesk.stop,
    HandoffDesk.begin,
    HandoffDesk.hand_over,
    HandoffDesk.commit,
)


def draw_pairs(name: str, case: str, first_s: float) -> Plot:
    """A worker drains while another cannot read from it. beside: a third one can; alone: there is none, and after some
    seconds the other one can read. `first_s`: nothing begins earlier."""
    rng = random.Random(name)
    num_workers = 3 if case == "beside" else 2
    setup = RingSetup(
        num_workers=num_workers,
        num_blocks=2000,
        num_slots=24,
        max_model_len=600,
        vocab_size=1000,
        max_draft_tokens=rng.choice((0, 0, 2)),
        step_s=(0.1, 0.3),
        move_s=rng.choice((0.0, 0.02)),
        scheduler={
            "max_num_seqs": 24,
            "max_num_batched_tokens": 400,
            "max_inflight_steps": rng.choice((1, 2)),
        },
    )
    count = rng.randint(5, 9) if case == "beside" else rng.randint(4, 6)
    requests = tuple(
        Planned(first_s + rng.uniform(0.0, 0.5), 0, _request(rng, f"q{number}", setup.max_draft_tokens))
        for number in range(count)
    )
    kind = rng.choice(tuple(BESIDE_S))
    drain_at = first_s + rng.uniform(1.5, 2.5)
    bad_s = 60.0 if case == "beside" else rng.uniform(2.0, 7.0)
    until = drain_at + BESIDE_S[kind] if case == "beside" else drain_at + bad_s + AFTER_S
    faults = (
        Fault(drain_at - 0.2, kind, ("w1", "w0"), min(bad_s + 0.2, until - drain_at + 1.0)),
        Fault(drain_at, "drain", ("w0",), until - drain_at + 1.0),
        Fault(until, "expect_drained", ("w0",)),
    )
    return Plot(name, setup, requests, faults, check_every=149, warm_up_s=first_s)


def _request(rng: random.Random, name: str, num_drafts: int) -> RingRequest:
    prompt = tuple(rng.randrange(900) for _ in range(rng.randint(2, 40)))
    num_tokens = rng.randint(200, 260) * (2 if num_drafts else 1)
    return RingRequest(name, prompt, num_tokens, seed=rng.randrange(1000))


def draw_forms(name: str, first_s: float) -> Plot:
    """A worker drains, and others cannot prepare a third of the forms of what they take over. `first_s`: nothing begins
    earlier."""
    rng = random.Random(name)
    setup = RingSetup(
        num_workers=rng.choice((2, 3)),
        num_blocks=2000,
        num_slots=24,
        max_model_len=600,
        vocab_size=1000,
        max_draft_tokens=rng.choice((0, 0, 2)),
        step_s=(0.1, 0.3),
        move_s=rng.choice((0.0, 0.02)),
        grammar_failures=0.3,
        scheduler={"max_num_seqs": 24, "max_num_batched_tokens": 400},
    )
    planned = []
    for number in range(rng.randint(4, 8)):
        request = _request(rng, f"q{number}", setup.max_draft_tokens)
        if rng.random() < 0.7:
            request = replace(request, rule=Rule(rng.choice((2, 3)), rng.randint(100, 200), 0))
        planned.append(Planned(first_s + rng.uniform(0.0, 0.5), 0, request))
    drains = Fault(first_s + rng.uniform(1.5, 2.5), "drain", ("w0",), 8.0)
    return Plot(name, setup, tuple(planned), (drains,), check_every=149, warm_up_s=first_s)


@dataclass
class _Pause:
    until: float
    pause_s: float


class PairWatch:
    """When hand-offs of a pair may begin, by how its last ones ended; of one scheduler process."""

    def __init__(self) -> None:
        self.is_ordered = False
        """An operator wants the hand-off that begins."""
        self._pauses: dict[Any, _Pause] = {}

    def failed(self, pair: Any, now: float) -> None:
        """A hand-off has failed by its target's word, or was late."""
        known = self._pauses.get(pair)
        if known is None or now > known.until + known.pause_s:
            self._pauses[pair] = _Pause(now + FIRST_S, FIRST_S)
        elif now >= known.until:
            pause_s = min(2 * known.pause_s, MOST_S)
            self._pauses[pair] = _Pause(now + pause_s, pause_s)

    def committed(self, pair: Any) -> None:
        """A hand-off has ended well."""
        self._pauses.pop(pair, None)

    def begins(self, pair: Any, now: float) -> None:
        """A hand-off begins."""
        known = self._pauses.get(pair)
        if known is not None and not self.is_ordered and now < known.until - NEAR_S:
            note(f"{pair} is tried again {known.until - now:.2f} s too early (HO21)")


def stop_watched(desk: Any, handoff: Any, reason: str, now: float, **named: Any) -> None:
    """As `HandoffDesk.stop`, and notes failures of pairs."""
    if not handoff.is_over and reason in ("target", "late"):
        _watch_of(desk).failed(_pair(handoff), now)
        plot = current_process().node.ring.plot
        if reason == "target" and not any(map(_is_between, plot.faults)):
            why = named.get("why", "")
            note(f"{_pair(handoff)} is left out, and nothing is between the two: {why} (HO21)")
    _STOP(desk, handoff, reason, now, **named)


def _is_between(fault: Fault) -> bool:
    """It may keep one worker from reading from another."""
    is_elsewhere = fault.kind in PATH_KINDS and any(target[0] != "w" for target in fault.targets)
    return not is_elsewhere and fault.kind not in CALM_KINDS


def begin_watched(desk: Any, request: Any, source: Any, target: Any, now: float) -> Any:
    """As `HandoffDesk.begin`, and looks whether it may: where one path alone is silent, by the frontend, too."""
    _watch_of(desk).begins((source.process, target.process), now)
    plot, name = current_process().node.ring.plot, request.key.frontend_instance
    if plot.most_gap_s and not desk._frontends.is_present(name, now, UNHEARD_S):
        note(f"{request.key} is to move, and its frontend is silent (HO20)")
    return _BEGIN(desk, request, source, target, now)


def hand_over_watched(desk: Any, *given: Any) -> Any:
    """As `HandoffDesk.hand_over`."""
    watch = _watch_of(desk)
    watch.is_ordered = True
    try:
        return _HAND_OVER(desk, *given)
    finally:
        watch.is_ordered = False


def commit_watched(desk: Any, handoff: Any, *given: Any) -> None:
    """As `HandoffDesk.commit`, and notes it."""
    _watch_of(desk).committed(_pair(handoff))
    _COMMIT(desk, handoff, *given)


def _pair(handoff: Any) -> tuple[Any, Any]:
    return handoff.source_process, handoff.target_process


def _watch_of(desk: Any) -> PairWatch:
    watches: dict[Any, PairWatch] = current_process().node.ring.pair_watches
    return watches.setdefault(desk, PairWatch())
