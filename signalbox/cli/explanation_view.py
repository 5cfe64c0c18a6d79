"""What the scheduler says of a request, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from signalbox.cli.table import count
from signalbox.v1 import admin_pb2

Explanation = admin_pb2.RequestExplanation
Group = admin_pb2.WaitingGroup


def to_text(explained: Explanation) -> str:
    """A line with the request's id, and one for each thing that is known of it."""
    return "\n".join(
        [f"request {explained.ref.request_id}", *(f"  {n:<9} {t}" for n, t in _lines(explained))]
    )


def to_json(explained: Explanation) -> dict[str, Any]:
    """All fields by their names in the proto; those of `ref` beside the others, enums as words."""
    ref, fields = explained.ref, explained.DESCRIPTOR.fields
    words = {"status": status_of(explained), "reason": reason_of(explained)}
    groups = {name: [_group(group) for group in getattr(explained, name)] for name in ("ahead", "turns")}
    plain = {field.name: getattr(explained, field.name) for field in fields if field.name != "ref"}
    waiting_ms = explained.waiting_ms if explained.HasField("waiting_ms") else None
    known = {"request_id": ref.request_id, "attempt": ref.attempt}
    return {**known, **plain, **words, **groups, "waiting_ms": waiting_ms}


def status_of(explained: Explanation) -> str:
    """The status as a word: `waiting`, `running`, ..."""
    name = admin_pb2.RequestStatus.Name(explained.status)
    return name.removeprefix("REQUEST_STATUS_").lower()


def reason_of(explained: Explanation) -> str:
    """The reason as a word: `runs`, `no_place`, ..."""
    return admin_pb2.WaitReason.Name(explained.reason).removeprefix("WAIT_REASON_").lower()


def _lines(explained: Explanation) -> Iterator[tuple[str, str]]:
    waits = explained.HasField("waiting_ms")
    waited = f", waits for {_seconds(explained.waiting_ms)}" if waits else ""
    yield "status", status_of(explained) + waited
    yield "why", f"{reason_of(explained)}: {explained.sentence}"
    if explained.num_ahead or explained.status == admin_pb2.REQUEST_STATUS_WAITING:
        yield "in line", _in_line(explained)
    if explained.turns:
        yield "turns", f"with {_told(explained.turns)}; whoever has had least is next"
    tenant = f"tenant {explained.tenant}, " if explained.tenant else ""
    tokens = count(explained.num_prompt_tokens, "prompt token")
    yield (
        "request",
        f"model {explained.model}, {tenant}priority {explained.priority}, {tokens}, "
        f"accepted {_seconds(explained.age_ms)} ago",
    )
    yield "frontend", f"{explained.frontend_instance}, attempt {explained.ref.attempt}"
    if explained.worker_id:
        yield "worker", _on_worker(explained)


def _in_line(explained: Explanation) -> str:
    number = explained.num_ahead
    if not number and not explained.more_ahead:
        return "first"
    goes = "request goes" if number == 1 else "requests go"
    least = "at least " if explained.more_ahead else ""
    return f"{least}{number} {goes} first: {_told(explained.ahead)}"


def _told(groups: Sequence[Group]) -> str:
    return "; ".join(
        f"{group.num_requests} of class {group.priority}"
        + (f", tenant {group.tenant}" if group.tenant else "")
        for group in groups
    )


def _on_worker(explained: Explanation) -> str:
    parts = [
        f"{explained.num_output_tokens} of at most {count(explained.max_output_tokens, 'output token')}",
        f"{count(explained.num_computed_tokens, 'token')} computed",
        f"{explained.num_cached_tokens} cached",
        count(explained.num_blocks, "block"),
    ]
    if explained.num_preemptions:
        parts.append(f"preempted {count(explained.num_preemptions, 'time')}")
    if explained.num_displacements:
        parts.append(f"displaced {count(explained.num_displacements, 'time')}")
    return f"{explained.worker_id}: {', '.join(parts)}"


def _seconds(ms: int) -> str:
    return f"{ms / 1e3:.1f} s"


def _group(group: Group) -> dict[str, Any]:
    return {"priority": group.priority, "tenant": group.tenant, "num_requests": group.num_requests}
