"""The part of workers that read cached blocks from each other."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Protocol

from scheduler_svc.core.parts.pulls.pace import PullPace
from scheduler_svc.core.parts.pulls.plan import PullPlan
from scheduler_svc.core.parts.pulls.pull import AnyPull, PullOrders
from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.part import Claim, Phase, Source
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker

PULLS = "pulls"
"""Name of the part."""


class Puller(Protocol):
    """What a part asks of `PullDesk`, which knows the other workers."""

    def find(self, worker: Worker, request: Request, prefix: Prefix, now: float) -> PullPlan | None:
        """What `worker` is to read from another one for `request`; None: nothing."""

    def begin(
        self,
        worker: Worker,
        request: Request,
        plan: PullPlan,
        needs: Sequence[int],
        step: StepDecision,
        now: float,
    ) -> None:
        """Orders it with `step`."""


class PullsPart(Source):
    """Pulls under way at one worker, and orders for the next step that is not a suspect's."""

    name = PULLS
    rank = 50
    acts = MappingProxyType({Phase.ORDER: Claim()})

    def __init__(self, worker: Worker, puller: Puller) -> None:
        self._worker, self._puller = worker, puller
        self.pace = PullPace()
        self.shown: dict[int, list[Blocks]] = {}
        """By number of a pull: blocks of each group that others read here. They are held."""
        self.exports: list[AnyPull] = []
        """Pulls among them that no step has named yet."""
        self.ended: list[int] = []
        """Numbers of those that steps have named and that have ended since."""
        self.is_idle = True

    @property
    def has_orders(self) -> bool:
        """As `Part.has_orders`."""
        return bool(self.exports or self.ended)

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        if self.exports or self.ended:
            orders = step.order(PullOrders)
            orders.exports, orders.ended = self.exports, self.ended
            self.exports, self.ended = [], []
        self.is_idle = True

    def find(self, request: Request, prefix: Prefix, needs: list[int], now: float) -> PullPlan | None:
        """As `Source.find`."""
        return self._puller.find(self._worker, request, prefix, now)

    def fetch(
        self, request: Request, plan: PullPlan, needs: list[int], step: StepDecision, now: float
    ) -> None:
        """As `Source.fetch`."""
        self._puller.begin(self._worker, request, plan, needs, step, now)

    def explain(self, plan: PullPlan) -> str:
        """As `Source.explain`."""
        return f"{sum(plan.longer.counts)} cached blocks are to be read from worker {plan.source_id} first"

    def computed(self, num_prefill_tokens: int, num_decode_rows: int, execute_us: int) -> None:
        """As `Part.computed`."""
        self.pace.computed(num_prefill_tokens, num_decode_rows, execute_us)

    def show(self, pull: AnyPull) -> None:
        """Another worker is to read blocks here. They are held by the caller."""
        self.shown[pull.number] = pull.shown
        self.exports.append(pull)
        self.is_idle = False

    def end(self, pull: AnyPull) -> None:
        """Ends a pull whose blocks are not held any more. The next step names it if an earlier one did."""
        if pull in self.exports:
            self.exports.remove(pull)
        else:
            self.ended.append(pull.number)
            self.is_idle = False

    def pinned(self, group: int) -> list[Blocks]:
        """As `Part.pinned`: blocks that others read."""
        return [blocks[group] for blocks in self.shown.values()]


def pulls_of(worker: Worker) -> PullsPart | None:
    """The worker's pulls; None: it neither reads from others nor lets them read."""
    return worker.parts.get(PullsPart)


def must_pull(worker: Worker) -> PullsPart:
    """The pulls of a worker that is an end of one."""
    part = worker.parts.get(PullsPart)
    assert part is not None
    return part
