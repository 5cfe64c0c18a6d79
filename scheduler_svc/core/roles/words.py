"""Why roles have moved a request, or have not, in words."""

from __future__ import annotations

from math import isinf

from scheduler_svc.core.request import Request
from scheduler_svc.core.roles.disaggregation import ALWAYS, Disaggregation
from scheduler_svc.core.roles.interference import MoveEstimate
from scheduler_svc.core.slots.worker import Worker


def explain_role(disaggregation: Disaggregation, request: Request, worker: Worker) -> str:
    """What goes behind the sentence on a request that decodes; empty: roles have no part in it."""
    moved = request.history.move_estimate
    if moved is not None:
        return f"; it is moved behind its prompt, {_figures(moved)}"
    if not disaggregation.decodes_for_others(worker):
        return ""
    target, estimate = disaggregation.weigh(request, worker)
    if target is None:
        return "; nobody whose role is to decode has room for it"
    return f"; a move to {target.info.worker_id} waits, or does not pay: {_figures(estimate)}"


def _figures(estimate: MoveEstimate) -> str:
    if estimate is ALWAYS:
        return "as always"
    if isinf(estimate.gain_s):
        return "as its role says: what a step takes is not known yet"
    return f"which saves {estimate.gain_s:.3f} s and costs {estimate.price_s:.3f} s, as is predicted"
