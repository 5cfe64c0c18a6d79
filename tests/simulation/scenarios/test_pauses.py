"""Clients that read too slowly."""

from __future__ import annotations

import functools

import pytest

from tests.simulation.named import INFLIGHT, preemptions, request, simulate


@INFLIGHT
def test_a_client_that_pauses_before_its_request_is_placed(inflight: int) -> None:
    """P2: it is placed all the same, paused from the next step on, and neither worker nor scheduler takes the
    later word for a change that it is not."""
    simulation = simulate(inflight, num_blocks=12, max_num_seqs=2)
    blockers = [simulation.plan(request(f"r{n}", 8, 20, 100 * n), at=1.5) for n in range(2)]
    slow = simulation.plan(request("slow", 12, 20, 500), at=1.5)
    simulation.world.at(1.52, lambda: simulation.frontend.set_paused(slow, True))
    made: list[int] = []
    simulation.world.at(8.0, lambda: made.append(len(slow.output)))
    simulation.world.at(8.0, lambda: simulation.plan(request("late", 8, 30, 900), at=0.0) and None)
    simulation.world.at(8.0, lambda: simulation.frontend.set_paused(slow, False))
    simulation.run()
    assert made[0] < 20 and all(session.is_done for session in blockers)
    assert simulation.scheduler.num_divergences == 0


@INFLIGHT
def test_a_preempted_request_whose_client_does_not_read_holds_up_nobody(inflight: int) -> None:
    """P2."""
    simulation = simulate(inflight, num_blocks=12, max_num_seqs=3)
    slow = simulation.plan(request("slow", 8, 30), at=1.5)
    simulation.world.at(1.6, lambda: simulation.frontend.set_paused(slow, True))
    others = [simulation.plan(request(f"r{n}", 16, 30, 100 * n), at=1.7 + 0.1 * n) for n in range(1, 4)]
    late = simulation.plan(request("late", 16, 10, 700), at=4.0)
    state: list[tuple[bool, int]] = []
    simulation.world.at(8.0, lambda: state.append((late.is_done, preemptions(simulation))))
    simulation.world.at(8.0, lambda: simulation.frontend.set_paused(slow, False))
    simulation.run()
    assert state[0][0] and state[0][1] > 0 and all(session.is_done for session in others)


@pytest.mark.sampled
@INFLIGHT
@pytest.mark.parametrize("num_blocks", [200, 14])
def test_slow_clients_hold_neither_seats_nor_blocks(inflight: int, num_blocks: int) -> None:
    """P1: they go on when they read again, behind whoever has their place by then."""
    simulation = simulate(inflight, num_blocks=num_blocks, max_num_seqs=2)
    slow = [simulation.plan(request(f"slow{n}", 17, 30, 100 * n), at=1.5) for n in range(2)]
    for session in slow:
        simulation.world.at(1.8, lambda s=session: simulation.frontend.set_paused(s, True))  # type: ignore[misc]
    others = [simulation.plan(request(f"r{n}", 17, 10, 300 + 100 * n), at=2.5) for n in range(5)]
    state: list[tuple[bool, bool]] = []

    def look() -> None:
        state.append((all(s.is_done for s in others), any(s.is_done for s in slow)))
        for session in slow:
            simulation.frontend.set_paused(session, False)

    simulation.world.at(8.0, look)
    simulation.run()
    assert state == [(True, False)] and all(len(s.output) == 30 for s in slow)
    assert simulation.scheduler.num_divergences == 0


@INFLIGHT
def test_clients_that_stop_and_go_never_have_more_places_than_there_are(inflight: int) -> None:
    """`check_scheduler` looks at the budget of every step, which has room for two rows."""
    simulation = simulate(inflight, max_num_seqs=2, max_num_batched_tokens=2)
    sessions = [simulation.plan(request(f"r{n}", 6, 25, 100 * n), at=1.5 + 0.05 * n) for n in range(5)]
    for n, session in enumerate(sessions):
        for turn in range(6):
            at = 1.6 + 0.21 * turn + 0.05 * n
            simulation.world.at(at, lambda s=session, on=turn % 2 == 0: simulation.frontend.set_paused(s, on))  # type: ignore[misc]
    simulation.run()
    assert all(session.ends == ["FINISH_REASON_LENGTH"] for session in sessions)
    assert simulation.scheduler.num_divergences == 0


@pytest.mark.sampled
@pytest.mark.parametrize("inflight", [1, 2])
def test_an_older_request_that_goes_on_and_a_younger_one_that_lacks_a_block_do_not_wait_for_each_other(
    inflight: int,
) -> None:
    """V4: the client goes on just when the pool is full, whenever that is."""
    for moment in range(26):
        simulation = simulate(inflight, num_blocks=12, max_num_seqs=2)
        first = simulation.plan(request("first", 8, 30), at=1.5)
        simulation.plan(request("second", 8, 34, 300), at=1.52)
        simulation.world.at(1.7, functools.partial(simulation.frontend.set_paused, first, True))
        simulation.world.at(
            1.8 + 0.02 * moment, functools.partial(simulation.frontend.set_paused, first, False)
        )
        simulation.run()
