"""What the streams of both faces have to be: read by hand, so that no SDK's patience hides a fault."""

from __future__ import annotations

import json
from typing import Any


def events_of(text: str) -> list[dict[str, Any]]:
    """Data of all events; each says its type twice."""
    events = []
    for block in text.split("\n\n")[:-1]:
        kind, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {events[-1]['type']}", block
    return events


def check_messages(text: str) -> None:
    """A stream of /v1/messages: blocks one behind the other, each begun and ended, then how it ended, once."""
    first, ping, *blocks, last, stop = events_of(text)
    assert (first["type"], ping["type"]) == ("message_start", "ping")
    assert (last["type"], stop["type"]) == ("message_delta", "message_stop")
    assert last["delta"]["stop_reason"] in ("end_turn", "max_tokens", "tool_use", "stop_sequence")
    begun = -1
    is_open = False
    for event in blocks:
        kind = event["type"]
        assert kind in ("content_block_start", "content_block_delta", "content_block_stop"), event
        assert is_open == (kind != "content_block_start"), event
        begun += not is_open
        is_open = kind != "content_block_stop"
        assert event["index"] == begun, event
    assert not is_open


def check_responses(text: str) -> None:
    """A stream of /v1/responses: numbered, items one behind the other, and one end that has them all."""
    events = events_of(text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    created, progress, *told, last = events
    assert (created["type"], progress["type"]) == ("response.created", "response.in_progress")
    assert last["type"] in ("response.completed", "response.incomplete")
    added: list[str] = []
    is_open = False
    for event in told:
        match event["type"]:
            case "response.output_item.added":
                assert not is_open and event["output_index"] == len(added), event
                added.append(event["item"]["id"])
                is_open = True
            case "response.output_item.done":
                assert is_open and event["item"]["id"] == added[-1], event
                is_open = False
            case _:
                assert is_open and event["item_id"] == added[-1], event
    assert not is_open
    assert [item["id"] for item in last["response"]["output"]] == added
