"""A leader that its frontends still reach, and its workers do not, is left for the one that the workers obey (T6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frontend_svc.links.known_leader import KnownLeader
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.ring import Ring
from tests.simulation.ring.setup import Fault, Planned, Plot, RingSetup
from worker_svc.links.output_logs import OutputLogs

Patch = pytest.MonkeyPatch
AT_S, LASTS_S = 3.0, 15.0
"""From when on two schedulers believe that they lead, and for how long the workers do not reach the first of them."""
FOUND_S = 5.0
"""Longest time of a request that comes meanwhile. The workers take two seconds to call their scheduler silent."""
SEEDS = range(3)


class SplitRing(Ring):
    """A ring whose leader loses its workers, and neither its frontend nor its faith."""

    def __init__(self, seed: int) -> None:
        begins = (AT_S - 0.1, AT_S + 1.0, AT_S + 4.0)
        super().__init__(
            Plot(
                f"successor {seed}",
                RingSetup(num_workers=2, num_schedulers=2, has_lease=True, step_s=(0.02, 0.04)),
                tuple(Planned(at, 0, RingRequest(f"r{at}", (5, 6, 7), 12)) for at in begins),
                (Fault(AT_S, "share_lease", (), LASTS_S),),
            )
        )
        self.world.at(AT_S - 0.01, self._split)

    def _split(self) -> None:
        assert self.lease.holder is not None, "somebody leads"
        name = self.lease.holder.us.address.partition(":")[0]
        for worker in self.workers:
            heal = self.faults.cut(Fault(AT_S, "cut", (name, worker.name), LASTS_S))
            self.world.at(LASTS_S, heal)

    def waits_s(self) -> list[float]:
        """How long each client waited for its end."""
        self.run()
        return [client.ended_at - client.began_at for client in self.clients]


def is_found(plant: Callable[[Patch], None]) -> bool:
    """Whether some ring is slow, or breaks a rule, with this bug."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in SEEDS:
            try:
                waits_s = SplitRing(seed).waits_s()
            except AssertionError:
                return True
            if max(waits_s) > FOUND_S:
                return True
    return False


def workers_are_not_heard(patch: Patch) -> None:
    """T6: a frontend takes no notice of whom its workers obey."""
    patch.setattr(KnownLeader, "hear", lambda known, term, instance: None)


def only_new_streams_are_told(patch: Patch) -> None:
    """T6: a stream that is open is not told of a scheduler that greets its worker."""
    next_message = OutputLogs.next_message
    first: dict[int, object] = {}

    def of_the_first(logs: OutputLogs, stream: object) -> object:
        now = logs._obeyed
        logs._obeyed = first.setdefault(id(stream), now)  # type: ignore[assignment]
        try:
            return next_message(logs, stream)  # type: ignore[arg-type]
        finally:
            logs._obeyed = now

    patch.setattr(OutputLogs, "next_message", of_the_first)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_without_workers_holds_nobody(seed: int) -> None:
    """Before, requests waited for the deposed leader's end: 13 s and more of these 15."""
    assert max(SplitRing(seed).waits_s()) < FOUND_S


@pytest.mark.parametrize(
    "plant",
    [workers_are_not_heard, only_new_streams_are_told],
    ids=lambda plant: plant.__name__,
)
def test_planted_bugs_are_found(plant: Callable[[Patch], None]) -> None:
    assert is_found(plant)
