"""Prompts that begin alike, at the same time."""

from __future__ import annotations

import pytest

from tests.simulation.named import INFLIGHT, refuse_first_chunk, request, simulate
from tests.simulation.scenario import Simulation
from worker_svc.core.batch import Batch, Sampled


def watch_computing(simulation: Simulation) -> dict[str, int]:
    """Prompt tokens computed in all, filled while the simulation runs."""
    computed: dict[str, int] = {"tokens": 0}
    node = simulation.workers[0]
    execute = node.runner.execute

    def count(batch: Batch) -> Sampled:
        computed["tokens"] += int(batch.query_starts[-1] - batch.query_starts[batch.num_decode_rows])
        return execute(batch)

    node.runner.execute = count  # type: ignore[method-assign]
    return computed


@INFLIGHT
@pytest.mark.parametrize("threshold", [0, 5])
def test_a_crowd_shares_what_the_first_of_it_computes(inflight: int, threshold: int) -> None:
    """C8."""
    simulation = simulate(inflight, long_prefill_token_threshold=threshold)
    computed = watch_computing(simulation)
    for number in range(8):
        simulation.plan(request(f"r{number}", 40, 6), at=1.5)
    assert simulation.run().num_requests == 8
    assert computed["tokens"] == 40 + 7 * 4, "the prompt once, and its last block each"


@INFLIGHT
@pytest.mark.parametrize("end", ["cancel", "pause", "refuse"])
def test_a_crowd_whose_first_does_not_arrive(
    inflight: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C11: the leader's first chunk runs, or is refused; then it is gone, or stands still. The others go on."""
    simulation = simulate(inflight, long_prefill_token_threshold=5)
    first = simulation.plan(request("r0", 40, 6), at=1.5)
    for number in range(1, 6):
        simulation.plan(request(f"r{number}", 40, 6), at=1.5)
    if end == "cancel":
        simulation.world.at(1.54, lambda: simulation.frontend.cancel(first))
    elif end == "pause":
        simulation.world.at(1.54, lambda: simulation.frontend.set_paused(first, True))
        simulation.world.at(6.0, lambda: simulation.frontend.set_paused(first, False))
    else:
        refuse_first_chunk(monkeypatch)
    ends: dict[str, float] = {}
    after = simulation.world.after_event

    def watch() -> None:
        after()
        for session in simulation.frontend.sessions:
            if session.is_done:
                ends.setdefault(session.request_id, simulation.world.now)

    simulation.world.after_event = watch
    simulation.run()
    assert max(ends[f"r{number}"] for number in range(1, 6)) < 4.0, "nobody waits for who stands still"
    assert simulation.scheduler.num_divergences == 0
