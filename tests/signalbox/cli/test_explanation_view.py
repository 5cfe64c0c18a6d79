"""What `signalbox status REQUEST` prints."""

from __future__ import annotations

import json
from typing import Any

from signalbox.cli.explanation_view import to_json, to_text
from signalbox.v1 import admin_pb2, shared_pb2


def make_explanation(**fields: Any) -> admin_pb2.RequestExplanation:
    values: dict[str, Any] = {
        "ref": shared_pb2.RequestRef(request_id="mine", attempt=2),
        "frontend_instance": "f1",
        "model": "demo",
        "tenant": "acme",
        "priority": 1,
        "status": admin_pb2.REQUEST_STATUS_WAITING,
        "reason": admin_pb2.WAIT_REASON_NO_PLACE,
        "sentence": "all 4 places of w are taken (max_num_seqs 4)",
        "age_ms": 3500,
        "waiting_ms": 0,
        "num_prompt_tokens": 20,
    }
    return admin_pb2.RequestExplanation(**values | fields)


def group(priority: int, tenant: str, count: int) -> admin_pb2.WaitingGroup:
    return admin_pb2.WaitingGroup(priority=priority, tenant=tenant, num_requests=count)


def test_who_waits_is_shown_its_place_by_class_and_tenant() -> None:
    explained = make_explanation(
        num_ahead=3, ahead=[group(0, "x", 2), group(1, "", 1)], turns=[group(1, "y", 9)]
    )
    assert to_text(explained).split("\n") == [
        "request mine",
        "  status    waiting, waits for 0.0 s",
        "  why       no_place: all 4 places of w are taken (max_num_seqs 4)",
        "  in line   3 requests go first: 2 of class 0, tenant x; 1 of class 1",
        "  turns     with 9 of class 1, tenant y; whoever has had least is next",
        "  request   model demo, tenant acme, priority 1, 20 prompt tokens, accepted 3.5 s ago",
        "  frontend  f1, attempt 2",
    ]


def test_a_count_that_was_cut_is_called_the_least() -> None:
    text = to_text(make_explanation(num_ahead=50, more_ahead=True, ahead=[group(0, "", 50)]))
    assert "  in line   at least 50 requests go first: 50 of class 0" in text.split("\n")


def test_who_runs_is_shown_how_far_it_is() -> None:
    explained = make_explanation(
        status=admin_pb2.REQUEST_STATUS_RUNNING,
        reason=admin_pb2.WAIT_REASON_RUNS,
        waiting_ms=None,
        worker_id="w",
        num_output_tokens=7,
        max_output_tokens=50,
        num_computed_tokens=26,
        num_blocks=1,
        num_preemptions=1,
        num_displacements=2,
    )
    lines = to_text(explained).split("\n")
    assert lines[1] == "  status    running"
    assert not any(line.startswith("  in line") for line in lines)
    assert lines[-1] == (
        "  worker    w: 7 of at most 50 output tokens, 26 tokens computed, 0 cached, 1 block, "
        "preempted 1 time, displaced 2 times"
    )


def test_json_has_words_for_enums_and_null_for_what_is_unset() -> None:
    document = json.loads(json.dumps(to_json(make_explanation(ahead=[group(0, "x", 2)], waiting_ms=None))))
    assert (document["request_id"], document["attempt"], document["waiting_ms"]) == ("mine", 2, None)
    assert (document["status"], document["reason"]) == ("waiting", "no_place")
    assert document["ahead"] == [{"priority": 0, "tenant": "x", "num_requests": 2}]
    assert set(document) >= {field.name for field in make_explanation().DESCRIPTOR.fields} - {"ref"}
