"""Answers of POST /v1/messages: a message of blocks, whole or as events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from frontend_svc.api.anthropic.body import MessagesBody
from frontend_svc.api.anthropic.errors import make_error
from frontend_svc.api.openai.usage import Usage
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import DEAD_END, Delta, Finished
from frontend_svc.requests.output_events import events_of
from frontend_svc.text.opaque_reasoning import pack_reasoning
from frontend_svc.text.output_blocks import (
    BlockKind,
    Change,
    Closed,
    Grown,
    Opened,
    OutputBlock,
    OutputBlocks,
)
from signalbox.errors import SignalboxError
from signalbox.protocol.enums import FinishReason

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


class MessagesRenderer:
    """The events of a stream, or the one message that they make."""

    def __init__(
        self, body: MessagesBody, choices: Choices, applied_edits: Sequence[dict[str, Any]] = ()
    ) -> None:
        """`applied_edits`: what the history has lost."""
        session = choices.sessions[0]
        self._id = session.request_id
        self._model = session.request.model
        self._omits_thinking = body.omits_thinking
        self._edits: dict[str, Any] = {}
        if body.context_management is not None:
            self._edits = {"context_management": {"applied_edits": list(applied_edits)}}
        self._usage = Usage(choices)
        self._hides_thinking = body.hides_thinking
        self._blocks = OutputBlocks()
        self._finished: Finished | None = None

    def render_first(self) -> bytes:
        """The message begins."""
        return _event("message_start", message=self._make_message([])) + PING

    def render_deltas(self, news: Sequence[tuple[int, Delta]]) -> bytes:
        """What has come, as pieces of blocks."""
        return b"".join([self._render(self._read(delta)) for _, delta in news])

    def render_end(self) -> bytes:
        """The last block and the message are complete."""
        blocks = self._render(self._blocks.end())
        ended = _event("message_delta", delta=self._make_stop(), usage=self._make_usage(), **self._edits)
        return blocks + ended + _STOP

    def render_error(self, error: SignalboxError) -> bytes:
        """What follows the last delta when the call failed."""
        return b"event: error\ndata: " + orjson.dumps(make_error(error)) + b"\n\n"

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""
        self._read(outputs[0])
        self._blocks.end()
        content = [self._make_block(block) for block in self._blocks.blocks]
        return orjson.dumps(self._make_message(content) | self._make_stop() | self._edits)

    def _read(self, delta: Delta) -> list[Change]:
        self._usage.add(0, delta)
        self._finished = delta.finished
        return self._blocks.push(events_of(delta, with_reasoning=not self._hides_thinking))

    def _render(self, changes: Iterable[Change]) -> bytes:
        return b"".join(map(self._render_change, changes))

    def _render_change(self, change: Change) -> bytes:
        match change:
            case Opened(block):
                return _event("content_block_start", index=block.index, content_block=_empty(block))
            case Grown(block, piece):
                return self._render_piece(block, piece)
            case Closed(block):
                ended = _event("content_block_stop", index=block.index)
                if block.kind is not BlockKind.REASONING:
                    return ended
                signed = {"type": "signature_delta", "signature": pack_reasoning(block.text)}
                return _event("content_block_delta", index=block.index, delta=signed) + ended

    def _render_piece(self, block: OutputBlock, piece: str) -> bytes:
        match block.kind:
            case BlockKind.TEXT:
                delta = {"type": "text_delta", "text": piece}
            case BlockKind.CALL:
                delta = {"type": "input_json_delta", "partial_json": piece}
            case BlockKind.REASONING:
                if self._omits_thinking:
                    return b""
                delta = {"type": "thinking_delta", "thinking": piece}
        return _event("content_block_delta", index=block.index, delta=delta)

    def _make_block(self, block: OutputBlock) -> dict[str, Any]:
        match block.kind:
            case BlockKind.TEXT:
                return _empty(block) | {"text": block.text}
            case BlockKind.CALL:
                return _empty(block) | {"input": _as_object(block.text)}
            case BlockKind.REASONING:
                told = "" if self._omits_thinking else block.text
                return _empty(block) | {"thinking": told, "signature": pack_reasoning(block.text)}

    def _make_message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._make_usage(),
        }

    def _make_stop(self) -> dict[str, Any]:
        finished = self._finished
        assert finished is not None
        if finished.reason is FinishReason.DEAD_END:
            return {"stop_reason": DEAD_END, "stop_sequence": None}
        if finished.reason is not FinishReason.STOP:
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        if finished.stop:
            return {"stop_reason": "stop_sequence", "stop_sequence": finished.stop}
        reason = "tool_use" if self._blocks.has_calls else "end_turn"
        return {"stop_reason": reason, "stop_sequence": None}

    def _make_usage(self) -> dict[str, Any]:
        cached = self._usage.num_cached_tokens
        return {
            "input_tokens": self._usage.num_prompt_tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": self._usage.num_output_tokens,
            "output_tokens_details": {"thinking_tokens": self._usage.num_reasoning_tokens},
        }


def _empty(block: OutputBlock) -> dict[str, Any]:
    """A block as it is announced."""
    match block.kind:
        case BlockKind.TEXT:
            return {"type": "text", "text": ""}
        case BlockKind.CALL:
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}
        case BlockKind.REASONING:
            return {"type": "thinking", "thinking": "", "signature": ""}


def _as_object(arguments: str) -> dict[str, Any]:
    """Empty for arguments that the limit of tokens has cut: no JSON says what is there. NaN and Infinity, which models
    write at times, are null."""
    try:
        value = json.loads(arguments or "{}", parse_constant=lambda name: None)
        orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind} | fields))
