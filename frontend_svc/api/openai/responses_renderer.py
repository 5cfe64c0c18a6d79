"""Answers of POST /v1/responses: one message of text."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import orjson

from frontend_svc.api.openai.responses_body import ResponsesBody
from frontend_svc.api.openai.usage import Usage
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta, Finished
from signalbox.errors import SignalboxError, code_of
from signalbox.protocol.enums import FinishReason


class ResponsesRenderer:
    """The `response.*` events of a stream, numbered from 0, or the object that the last of them carries."""

    def __init__(self, body: ResponsesBody, choices: Choices) -> None:
        session = choices.sessions[0]
        self._id = session.request_id
        self._message_id = f"msg_{secrets.token_hex(16)}"
        self._model = session.request.model
        self._body = body
        self._created_s = int(time.time())
        self._usage = Usage(choices)
        self._text: list[str] = []
        self._finished: Finished | None = None
        self._num_events = 0

    def render_first(self) -> bytes:
        """The answer begins, with a message that has a part of text."""
        begun = self._make_response("in_progress", [])
        return b"".join(
            [
                self._event("response.created", response=begun),
                self._event("response.in_progress", response=begun),
                self._event(
                    "response.output_item.added", output_index=0, item=self._make_message("in_progress", [])
                ),
                self._part_event("response.content_part.added", part=make_part("")),
            ]
        )

    def render_deltas(self, news: Sequence[tuple[int, Delta]]) -> bytes:
        """The text that has come."""
        events = []
        for index, delta in news:
            self._usage.add(index, delta)
            self._finished = delta.finished
            if delta.text:
                self._text.append(delta.text)
                events.append(self._part_event("response.output_text.delta", delta=delta.text, logprobs=[]))
        return b"".join(events)

    def render_end(self) -> bytes:
        """The part, the message and the answer are complete."""
        text = "".join(self._text)
        response = self._make_ended(text)
        status = response["status"]
        return b"".join(
            [
                self._part_event("response.output_text.done", text=text, logprobs=[]),
                self._part_event("response.content_part.done", part=make_part(text)),
                self._event("response.output_item.done", output_index=0, item=response["output"][0]),
                self._event(f"response.{status}", response=response),
            ]
        )

    def render_error(self, error: SignalboxError) -> bytes:
        """The event that tells that the answer failed."""
        response = self._make_response("failed", [])
        response["error"] = {"code": code_of(error), "message": error.message}
        return self._event("response.failed", response=response)

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""
        self._usage.add(0, outputs[0])
        self._finished = outputs[0].finished
        return orjson.dumps(self._make_ended(outputs[0].text))

    def _make_ended(self, text: str) -> dict[str, Any]:
        assert self._finished is not None
        complete = self._finished.reason is FinishReason.STOP
        status = "completed" if complete else "incomplete"
        response = self._make_response(status, [self._make_message(status, [make_part(text)])])
        if not complete:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return response | {"usage": self._make_usage()}

    def _make_usage(self) -> dict[str, Any]:
        prompt, output = self._usage.num_prompt_tokens, self._usage.num_output_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": self._usage.num_cached_tokens},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": self._usage.num_reasoning_tokens},
            "total_tokens": prompt + output,
        }

    def _make_message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._message_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _make_response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._body
        text_format: dict[str, Any] = {"type": "text"}
        if body.text is not None and body.text.format is not None:
            text_format = body.text.format.model_dump(by_alias=True, exclude_none=True)
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._model,
            "output": output,
            "parallel_tool_calls": True if body.parallel_tool_calls is None else body.parallel_tool_calls,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": text_format},
            "tool_choice": body.tool_choice or "auto",
            "tools": [],
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": body.user,
        }

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._message_id, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._num_events} | fields)
        self._num_events += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def make_part(text: str) -> dict[str, Any]:
    """The one part of the message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
