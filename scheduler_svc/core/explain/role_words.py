"""Why roles have moved a request, or have not, in words."""

from __future__ import annotations

from scheduler_svc.core.moves.disaggregation import Disaggregation
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker


def explain_role(disaggregation: Disaggregation, request: Request, worker: Worker) -> str:
    """The end of the sentence on a request that decodes; empty: roles have no part in it."""
    if request.history.was_moved_by_role:
        return "; it is moved behind its prompt, as always"
    if not disaggregation.decodes_for_others(worker):
        return ""
    target = disaggregation.target_for(request, worker)
    if target is None:
        left_out = disaggregation.left_out(worker)
        cannot = f" ({', '.join(left_out)} cannot read from {worker.info.worker_id})" if left_out else ""
        return f"; nobody whose role is to decode has room for it{cannot}"
    return f"; a move to {target.info.worker_id} waits"
