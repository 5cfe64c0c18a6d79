"""Limits of keys as frontends ask for them, beside the step loop: none of it makes a step (KB8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from scheduler_svc.core.budgets.ledger import Ledger
from scheduler_svc.core.budgets.pool import Before, Loan, Report
from scheduler_svc.links.directory import FrontendLink
from signalbox.protocol.enums import BudgetKind
from signalbox.v1 import from_frontend_pb2, to_frontend_pb2

MAX_KEY_ID_CHARS = 64
MAX_WAIT_MS = 3_600_000
MOST = 1 << 53
"""Counts are taken for this at most: above it sums are not exact."""
_KINDS = frozenset(map(int, BudgetKind))
_INT64 = (1 << 63) - 1


class BudgetDesk:
    """Takes reports of frontends to the ledger, and its loans back."""

    def __init__(self, clock: Callable[[], float], hold_s: float) -> None:
        """`clock` only rises, in seconds. hold_s: as of `Ledger`."""
        self.ledger = Ledger(hold_s)
        self._clock = clock
        self._links: dict[str, FrontendLink] = {}

    def begin(self, link: FrontendLink) -> None:
        """A frontend has said hello; it hears with the first message that limits are lent."""
        self._links[link.instance] = link
        self.ledger.leave(link.instance, self._clock())
        link.put(to_frontend_pb2.AttachFrontendResponse(lends_budgets=True), self._clock())

    def take(self, link: FrontendLink, reports: Iterable[from_frontend_pb2.BudgetReport]) -> None:
        """What a frontend says. What no frontend of this version says is passed over, and has no answer."""
        if self._links.get(link.instance) is not link:
            return
        now = self._clock()
        loans = []
        for message in reports:
            if message.kind in _KINDS and message.limit and len(message.key_id) <= MAX_KEY_ID_CHARS:
                name = message.key_id, BudgetKind(message.kind)
                loan = self.ledger.report(link.instance, name, _read(message), now)
                if loan is not None:
                    loans.append(_build(message, loan))
        if loans:
            link.put(to_frontend_pb2.AttachFrontendResponse(loans=loans), now)

    def end(self, link: FrontendLink) -> None:
        """A frontend's stream has ended."""
        if self._links.get(link.instance) is link:
            del self._links[link.instance]
            self.ledger.leave(link.instance, self._clock())


def _read(message: from_frontend_pb2.BudgetReport) -> Report:
    before = None
    if message.HasField("before"):
        before = Before(min(message.before.held, MOST), message.before.left)
    return Report(
        limit=min(message.limit, MOST),
        before=before,
        used=min(message.used, MOST),
        charged=min(message.charged, MOST),
        returned=min(message.returned, MOST),
        wanted=min(message.wanted, MOST),
        least=min(message.least, MOST),
    )


def _build(message: from_frontend_pb2.BudgetReport, loan: Loan) -> to_frontend_pb2.BudgetLoan:
    return to_frontend_pb2.BudgetLoan(
        key_id=message.key_id,
        kind=message.kind,
        lent=loan.lent,
        left=max(-_INT64, min(loan.left, _INT64)),
        wait_ms=min(math.ceil(loan.wait_s * 1e3), MAX_WAIT_MS),
    )
