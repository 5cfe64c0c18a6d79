"""The rules of work that is charged to tenants (docs/design.md, Q7, Q8): what schedulers have charged is what automata
have worked."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from scheduler_svc.core.scheduler import Scheduler
from signalbox.v1 import from_frontend_pb2
from tests.simulation.ring.automaton import MASK_US
from worker_svc.core.worker_core import WorkerCore

MOST_DRAFTS = 8


class MaskWatch:
    """What all workers of a ring have worked, and all schedulers charged, by tenant."""

    def __init__(self) -> None:
        self._automata: dict[int, tuple[str, Any]] = {}
        """By id: whose it is, and itself."""
        self._charged: dict[int, tuple[Scheduler, dict[str, float]]] = {}

    def applied(self, core: WorkerCore) -> None:
        """A worker has taken a step, or an automaton."""
        for slot, automaton in core._grammars._automata.items():
            meta = core.table.metas[slot]
            if id(automaton) not in self._automata and meta:
                tenant = from_frontend_pb2.RequestMeta.FromString(meta).tenant
                self._automata[id(automaton)] = tenant, automaton

    def looked_at(self, core: Scheduler | None) -> None:
        """A scheduler has done something; None: it does not lead."""
        if core is not None and core.queues.mask_seconds.by_tenant:
            self._charged[id(core)] = core, core.queues.mask_seconds.by_tenant

    def check(self, *, is_calm: bool, num_leaving: int) -> None:
        """All is over. is_calm: no link has failed, and no process has ended. num_leaving: requests whose clients may
        have left."""
        worked, charged = Counter[str](), defaultdict[str, float](float)
        for tenant, automaton in self._automata.values():
            if (form := getattr(automaton, "_form", automaton)) is not None and form.replay_us is not None:
                worked[tenant] += form.work_us - form.replay_us
        for _, by_tenant in self._charged.values():
            for tenant, seconds in by_tenant.items():
                charged[tenant] += 1e6 * seconds
        for tenant in worked | charged:
            assert charged[tenant] <= worked[tenant] + 0.5, (
                f"{tenant!r} is charged {charged}, of {worked} (Q8)"
            )
            # Masks may be in the making when their request goes.
            least = worked[tenant] - MASK_US * (1 + MOST_DRAFTS) * num_leaving - 0.5
            assert not is_calm or charged[tenant] >= least, (
                f"{tenant!r} is charged {charged}, of {worked} (Q7)"
            )
