"""What is asked for in runs of hand-offs: requests of all kinds, named, so that they can be moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.chaos.kinds import Ask, make_asks

CALL = {
    "type": "function",
    "function": {
        "name": "store",
        "parameters": {
            "type": "object",
            "properties": {"sizes": {"type": "array", "items": {"type": "integer"}, "minItems": 20}},
            "required": ["sizes"],
            "additionalProperties": False,
        },
    },
}


def make_all_kinds(count: int, num_tokens: int) -> list[Ask]:
    """`count` requests of about `num_tokens` output tokens: those of the faults, and calls of tools."""
    asks = make_asks(count, num_tokens)
    asks[-1] = _call(count - 1, num_tokens)
    return name_all(asks)


def make_greedy(count: int, num_tokens: int, prompts: Sequence[str]) -> list[Ask]:
    """Outputs of exactly so many tokens."""
    body = {"model": "demo", "max_tokens": num_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    body |= {"stream_options": {"include_usage": True}}
    prompted = (f"# {index}\n{prompts[index % len(prompts)]}" for index in range(count))
    return name_all([Ask("greedy", "http", body | {"prompt": prompt}) for prompt in prompted])


def name_all(asks: Sequence[Ask]) -> list[Ask]:
    """With a request id for each lane; the choices behind the first are `ID.1` and so on."""
    return [_named(ask, name_of(lane)) for lane, ask in enumerate(asks)]


def name_of(lane: int) -> str:
    """The request id of a lane's stream."""
    return f"lane-{lane}"


def _named(ask: Ask, request_id: str) -> Ask:
    if ask.face == "grpc":
        sampling: dict[str, Any] = {**ask.body["sampling"], "request_id": request_id}
        return replace(ask, body={**ask.body, "sampling": sampling})
    return replace(ask, body={**ask.body, "request_id": request_id})


def _call(index: int, num_tokens: int) -> Ask:
    body: dict[str, Any] = {"model": "demo", "max_tokens": num_tokens, "temperature": 0.8, "top_k": 5}
    body |= {"seed": index, "stream": True, "stream_options": {"include_usage": True}}
    body |= {"messages": [{"role": "user", "content": f"# {index}\nsizes = ["}], "tools": [CALL]}
    body["tool_choice"] = {"type": "function", "function": {"name": "store"}}
    return Ask("tool call", "http", body)
