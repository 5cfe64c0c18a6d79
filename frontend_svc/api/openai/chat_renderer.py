"""Answers of POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from frontend_svc.api.openai.chat_body import ChatBody
from frontend_svc.api.openai.renderer import ChoiceRenderer, reason_of
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta, TokenLogprobs
from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Reasoning, Text
from frontend_svc.text.tokenizer import Tokenizer


class ChatRenderer(ChoiceRenderer):
    """Text, and calls of tools if there are tools."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, body: ChatBody, choices: Choices, tokenizer: Tokenizer | None) -> None:
        super().__init__(choices, tokenizer, body.usages)
        self._body = body
        self._num_calls = [0] * len(choices.sessions)

    def make_choice(
        self, index: int, text: str, logprobs: Any, reason: str | None, *, chunk: bool
    ) -> dict[str, Any]:
        """One element of `choices`, as this endpoint has it."""
        if not chunk:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}
        delta = {"content": text} if text else {}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def make_logprobs(
        self, index: int, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]
    ) -> dict[str, Any]:
        """One object per token."""
        content = []
        for token_id, item in zip(token_ids, logprobs, strict=True):
            assert item is not None
            top = zip(item.top_token_ids, item.top_logprobs, strict=True)
            content.append(
                self._make_token(token_id, item.logprob)
                | {"top_logprobs": [self._make_token(top_id, logprob) for top_id, logprob in top]}
            )
        return {"content": content, "refusal": None}

    def render_first(self) -> bytes:
        """The events that come before any delta: the role of each choice."""
        delta = {"delta": {"role": "assistant", "content": ""}}
        return b"".join(
            self.render_choice(self.make_choice(index, "", None, None, chunk=True) | delta)
            for index in range(len(self._num_calls))
        )

    def render_delta(self, index: int, delta: Delta) -> bytes:
        """The events of one choice's delta."""
        if not delta.events and not self._num_calls[index]:
            return super().render_delta(index, delta)
        self._usage.add(index, delta)
        events = self._read(index, delta)
        chunks = [
            self.make_choice(index, "", None, None, chunk=True) | {"delta": d} for d in _deltas_of(events)
        ]
        if not chunks and (delta.logprobs or delta.finished is not None):
            chunks = [self.make_choice(index, "", None, None, chunk=True)]
        if delta.logprobs:
            chunks[0]["logprobs"] = self.make_logprobs(index, delta.token_ids, delta.logprobs)
        if delta.finished is not None:
            chunks[-1] |= {"finish_reason": self._reason(index, delta)} | self.make_stop_reason(index, delta)
        return b"".join(map(self.render_choice, chunks))

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""
        choices = []
        for index, delta in enumerate(outputs):
            self._usage.add(index, delta)
            made = self.make_logprobs(index, delta.token_ids, delta.logprobs) if delta.logprobs else None
            choices.append(self._make_whole(index, delta, made))
        body = self._head | {"choices": choices, "usage": self._usage.render()}
        if self._body.prompt_logprobs is not None:
            body["prompt_logprobs"] = self.make_prompt_logprobs(0, outputs[0], self._body.prompt_logprobs)
        return orjson.dumps(body)

    def _make_whole(self, index: int, delta: Delta, logprobs: Any) -> dict[str, Any]:
        events = self._read(index, delta)
        choice = self.make_choice(index, delta.text, logprobs, self._reason(index, delta), chunk=False)
        choice |= self.make_stop_reason(index, delta)
        message = choice["message"]
        if thought := "".join(event.text for event in events if isinstance(event, Reasoning)):
            message["reasoning"] = thought
        if made := _whole_calls(events):
            message["tool_calls"] = made
        if (thought or made) and not delta.text.strip():
            message["content"] = None
        return choice

    def _read(self, index: int, delta: Delta) -> list[Event]:
        """What is told of a delta that was parsed."""
        self._num_calls[index] += sum(isinstance(event, CallStart) for event in delta.events)
        if self._body.include_reasoning is False:
            return [event for event in delta.events if not isinstance(event, Reasoning)]
        return list(delta.events)

    def _reason(self, index: int, delta: Delta) -> str:
        assert delta.finished is not None
        reason = reason_of(delta.finished)
        # As OpenAI has it: a call that the client named itself is no news.
        if reason == "stop" and self._num_calls[index] and not self._body.toolbox.is_named:
            return "tool_calls"
        return reason

    def _make_token(self, token_id: int, logprob: float) -> dict[str, Any]:
        text, piece = self._token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(piece)}


def _deltas_of(events: Sequence[Event]) -> list[dict[str, Any]]:
    """`delta` of one chunk per event."""
    deltas: list[dict[str, Any]] = []
    for event in events:
        match event:
            case Text(text):
                deltas.append({"content": text})
            case Reasoning(text):
                deltas.append({"reasoning": text})
            case CallStart():
                deltas.append({"tool_calls": [_start_call(event)]})
            case CallArguments(index, text):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
    return deltas


def _whole_calls(events: Sequence[Event]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, CallStart):
            calls.append(_start_call(event))
            del calls[-1]["index"]
        elif isinstance(event, CallArguments):
            calls[-1]["function"]["arguments"] += event.text
    return calls


def _start_call(event: CallStart) -> dict[str, Any]:
    return {
        "index": event.index,
        "id": event.call_id,
        "type": "function",
        "function": {"name": event.name, "arguments": ""},
    }
