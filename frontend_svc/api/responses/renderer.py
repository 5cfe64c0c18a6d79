"""Answers of POST /v1/responses: a list of items, whole or as events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from frontend_svc.api.openai.usage import Usage
from frontend_svc.api.responses.body import ResponsesBody
from frontend_svc.api.responses.output import OutputItem
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import DEAD_END, Delta, Finished
from frontend_svc.requests.output_events import events_of
from frontend_svc.text.output_blocks import BlockKind, Change, Closed, Grown, Opened, OutputBlocks
from signalbox.errors import SignalboxError, code_of
from signalbox.protocol.enums import FinishReason


class ResponsesRenderer:
    """The `response.*` events of a stream, numbered from 0, or the object that the last of them carries."""

    def __init__(self, body: ResponsesBody, choices: Choices) -> None:
        session = choices.sessions[0]
        self._id = session.request_id
        self._model = session.request.model
        self._body = body
        self._created_s = int(time.time())
        self._usage = Usage(choices)
        self._blocks = OutputBlocks()
        self._items: list[OutputItem] = []
        self._finished: Finished | None = None
        self._num_events = 0

    def render_first(self) -> bytes:
        """The answer begins."""
        begun = self._make_response("in_progress")
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def render_deltas(self, news: Sequence[tuple[int, Delta]]) -> bytes:
        """What has come, as pieces of items."""
        return b"".join([self._render(self._read(delta)) for _, delta in news])

    def render_end(self) -> bytes:
        """The last item and the answer are complete."""
        items = self._render(self._blocks.end())
        response = self._make_ended()
        return items + self._event(f"response.{response['status']}", response=response)

    def render_error(self, error: SignalboxError) -> bytes:
        """The event that tells that the answer failed."""
        response = self._make_response("failed")
        response["error"] = {"code": code_of(error), "message": error.message}
        return self._event("response.failed", response=response)

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""
        for change in (*self._read(outputs[0]), *self._blocks.end()):
            if isinstance(change, Opened):
                self._open_item(change)
        return orjson.dumps(self._make_ended())

    def _read(self, delta: Delta) -> list[Change]:
        self._usage.add(0, delta)
        self._finished = delta.finished
        return self._blocks.push(events_of(delta))

    def _render(self, changes: Iterable[Change]) -> bytes:
        return b"".join([event for change in changes for event in self._render_change(change)])

    def _render_change(self, change: Change) -> list[bytes]:
        match change:
            case Opened():
                return self._render_opened(self._open_item(change))
            case Grown(block, piece):
                return self._render_piece(self._items[block.index], piece)
            case Closed(block):
                return self._render_closed(self._items[block.index])

    def _open_item(self, opened: Opened) -> OutputItem:
        body = self._body
        item = OutputItem(opened.block, body.response_tools, packs_reasoning=body.wants_encrypted_reasoning)
        self._items.append(item)
        return item

    def _render_opened(self, item: OutputItem) -> list[bytes]:
        added = self._event("response.output_item.added", output_index=item.block.index, item=item.begun())
        if item.block.kind is BlockKind.CALL:
            return [added]
        return [added, self._part_event(item, "response.content_part.added", part=item.part(empty=True))]

    def _render_piece(self, item: OutputItem, piece: str) -> list[bytes]:
        if item.block.kind is BlockKind.REASONING:
            return [self._part_event(item, "response.reasoning_text.delta", delta=piece)]
        if item.block.kind is BlockKind.TEXT:
            return [self._part_event(item, "response.output_text.delta", delta=piece, logprobs=[])]
        if item.origin.is_custom:  # told at once when it is known: its text is within JSON
            return []
        return [self._item_event(item, "response.function_call_arguments.delta", delta=piece)]

    def _render_closed(self, item: OutputItem) -> list[bytes]:
        done = self._render_done(item)
        whole = item.ended(self._status_of(item))
        done.append(self._event("response.output_item.done", output_index=item.block.index, item=whole))
        return done

    def _render_done(self, item: OutputItem) -> list[bytes]:
        text = item.block.text
        if item.block.kind is BlockKind.REASONING:
            told = self._part_event(item, "response.reasoning_text.done", text=text)
        elif item.block.kind is BlockKind.TEXT:
            told = self._part_event(item, "response.output_text.done", text=text, logprobs=[])
        elif item.origin.is_custom:
            text = item.custom_input
            delta = self._item_event(item, "response.custom_tool_call_input.delta", delta=text)
            return [delta, self._item_event(item, "response.custom_tool_call_input.done", input=text)]
        else:
            kind = "response.function_call_arguments.done"
            return [self._item_event(item, kind, arguments=text, name=item.origin.name)]
        return [told, self._part_event(item, "response.content_part.done", part=item.part())]

    def _status_of(self, item: OutputItem) -> str:
        """Only the last item can be cut."""
        cut = self._finished is not None and self._finished.reason is not FinishReason.STOP
        return "incomplete" if cut and item is self._items[-1] else "completed"

    def _make_ended(self) -> dict[str, Any]:
        assert self._finished is not None
        complete = self._finished.reason is FinishReason.STOP
        response = self._make_response("completed" if complete else "incomplete")
        response["output"] = [item.ended(self._status_of(item)) for item in self._items]
        if complete:
            response["completed_at"] = int(time.time())
        else:
            is_dead_end = self._finished.reason is FinishReason.DEAD_END
            response["incomplete_details"] = {"reason": DEAD_END if is_dead_end else "max_output_tokens"}
        return response | {"usage": self._make_usage()}

    def _make_usage(self) -> dict[str, Any]:
        prompt, output = self._usage.num_prompt_tokens, self._usage.num_output_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": self._usage.num_cached_tokens, "cache_write_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": self._usage.num_reasoning_tokens},
            "total_tokens": prompt + output,
        }

    def _make_response(self, status: str) -> dict[str, Any]:
        return make_response(self._body, self._id, self._model, self._created_s, status)

    def _part_event(self, item: OutputItem, kind: str, **fields: Any) -> bytes:
        return self._item_event(item, kind, content_index=0, **fields)

    def _item_event(self, item: OutputItem, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=item.id, output_index=item.block.index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._num_events} | fields)
        self._num_events += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def make_response(body: ResponsesBody, name: str, model: str, created_s: int, status: str) -> dict[str, Any]:
    """The object of an answer without output: mostly what the client asked."""
    text_format: dict[str, Any] = {"type": "text"}
    if body.text is not None and body.text.format is not None:
        text_format = body.text.format.model_dump(by_alias=True, exclude_none=True)
    choice = body.tool_choice or "auto"
    reasoning = body.reasoning
    return {
        "id": name,
        "object": "response",
        "created_at": created_s,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "store": False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": text_format},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [tool.model_dump(exclude_none=True) for tool in body.tools or []],
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
    }
