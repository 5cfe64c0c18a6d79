"""Limits of keys that are lent, as messages."""

from __future__ import annotations

from frontend_svc.access.lender import Lender, Name
from frontend_svc.access.lent_limit import LimitReport
from signalbox.protocol.enums import BudgetKind
from signalbox.v1 import from_frontend_pb2, to_frontend_pb2

_KINDS = frozenset(map(int, BudgetKind))
_MAX_LEFT = (1 << 63) - 1


def make_report(name: Name, report: LimitReport) -> from_frontend_pb2.BudgetReport:
    """What the scheduler is told of a limit."""
    message = from_frontend_pb2.BudgetReport(
        key_id=name[0],
        kind=name[1],  # type: ignore[arg-type]
        limit=min(report.limit, _MAX_LEFT),
        used=report.used,
        charged=report.charged,
        returned=report.returned,
        wanted=report.wanted,
        least=report.least,
    )
    if report.before is not None:
        held, left = report.before
        message.before.held, message.before.left = held, max(-_MAX_LEFT, min(left, _MAX_LEFT))
    return message


def take_loan(lender: Lender, loan: to_frontend_pb2.BudgetLoan) -> None:
    """The scheduler's answer; one of a kind that is not known here was not asked for."""
    if loan.kind in _KINDS:
        lender.take_loan((loan.key_id, BudgetKind(loan.kind)), loan.lent, loan.left, loan.wait_ms / 1e3)
