"""An explanation as a message."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_svc.core.explain.explanation import Explanation
from scheduler_svc.core.explain.queue_place import Group
from signalbox.v1 import admin_pb2, shared_pb2

MAX_GROUPS = 32


def make_explanation(explained: Explanation, wall_ms: float) -> admin_pb2.RequestExplanation:
    """The message of an explanation; `wall_ms` is Unix time."""
    request, place = explained.request, explained.place
    message = admin_pb2.RequestExplanation(
        ref=shared_pb2.RequestRef(request_id=request.key.request_id, attempt=request.attempt),
        frontend_instance=request.key.frontend_instance,
        model=request.model,
        tenant=request.tenant,
        priority=request.priority,
        status=f"REQUEST_STATUS_{request.status.name}",
        reason=f"WAIT_REASON_{explained.reason.name}",
        sentence=explained.sentence,
        # Clocks of two machines may disagree by some.
        age_ms=max(int(wall_ms) - request.arrival_ms, 0),
        waiting_ms=None if explained.waited_s is None else int(explained.waited_s * 1e3),
        num_ahead=place.num_ahead,
        more_ahead=place.is_cut,
        ahead=_groups(place.ahead),
        turns=_groups(place.turns),
        num_prompt_tokens=request.num_prompt_tokens,
    )
    if explained.progress is not None:
        _add_progress(message, explained)
    return message


def _add_progress(message: admin_pb2.RequestExplanation, explained: Explanation) -> None:
    request, progress = explained.request, explained.progress
    assert request.worker_id is not None and progress is not None
    message.worker_id = request.worker_id
    message.num_cached_tokens = request.history.num_cached_tokens
    message.num_computed_tokens = progress.num_computed
    message.num_output_tokens = progress.num_output
    message.max_output_tokens = progress.max_output
    message.num_blocks = progress.num_blocks
    message.num_preemptions = request.history.num_preemptions
    message.num_displacements = request.history.num_displacements


def _groups(groups: Sequence[Group]) -> list[admin_pb2.WaitingGroup]:
    return [
        admin_pb2.WaitingGroup(priority=group.priority, tenant=group.tenant, num_requests=group.num_requests)
        for group in groups[:MAX_GROUPS]
    ]
