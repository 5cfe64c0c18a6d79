"""Answers of POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import orjson

from frontend_svc.api.openai.chat_body import ChatBody
from frontend_svc.api.openai.renderer import ChoiceRenderer, reason_of
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta, TokenLogprobs
from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Reasoning, Text
from frontend_svc.text.tokenizer import Tokenizer

T = TypeVar("T")


class ChatRenderer(ChoiceRenderer):
    """Text, and calls of tools if there are tools."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(
        self,
        body: ChatBody,
        choices: Choices,
        tokenizer: Tokenizer | None,
        prompt_text: str = "",
        reasoning_fields: Sequence[str] = ("reasoning",),
    ) -> None:
        """`prompt_text` is what the template made; `reasoning_fields` are the names under which reasoning is told."""
        super().__init__(body, choices, tokenizer)
        self._body = body
        self._prompt_text = prompt_text
        self._reasoning_fields = reasoning_fields
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
        delta = {"delta": {"role": "assistant", "content": self._body.echoed}}
        beside = b"".join(
            b',"%b":%b' % (name.encode(), orjson.dumps(value)) for name, value in self._of_prompt()
        )
        return b"".join(
            self.render_choice(self.make_choice(index, "", None, None, chunk=True) | delta, beside)
            for index in range(len(self._num_calls))
        )

    def _of_prompt(self) -> list[tuple[str, Any]]:
        """What the client wants to be told of the prompt, by name."""
        told: list[tuple[str, Any]] = []
        if self._tells_tokens:
            told.append(("prompt_token_ids", self.prompt_tokens(0)))
        if self._body.return_prompt_text:
            told.append(("prompt_text", self._prompt_text))
        return told

    def render_delta(self, index: int, delta: Delta) -> bytes:
        """The events of one choice's delta."""
        is_text = not (delta.events or delta.reasoning_places)
        if is_text and not self._num_calls[index]:
            return super().render_delta(index, delta)
        self._usage.add(index, delta)
        events = self._read(index, delta)
        deltas = _deltas_of(events, self._reasoning_fields)
        chunks = [self.make_choice(index, "", None, None, chunk=True) | {"delta": d} for d in deltas]
        tokens = self.make_tokens(index, delta)
        logprobs = self._make_logprobs(index, delta)
        if not chunks and (logprobs or delta.finished is not None or tokens.get("token_ids")):
            chunks = [self.make_choice(index, "", None, None, chunk=True)]
        if tokens and chunks:
            chunks[0] |= tokens
        if logprobs:
            chunks[0]["logprobs"] = logprobs
        if delta.finished is not None:
            chunks[-1] |= {"finish_reason": self._reason(index, delta)} | self.make_stop_reason(index, delta)
        return b"".join(map(self.render_choice, chunks))

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""
        choices = []
        for index, delta in enumerate(outputs):
            self._usage.add(index, delta)
            choices.append(self._make_whole(index, delta, self._make_logprobs(index, delta)))
        body = self._head | {"choices": choices, "usage": self._usage.render()} | dict(self._of_prompt())
        if self._body.prompt_logprobs is not None:
            body["prompt_logprobs"] = self.make_prompt_logprobs(0, outputs[0], self._body.prompt_logprobs)
        return orjson.dumps(body)

    def make_tokens(self, index: int, delta: Delta) -> dict[str, Any]:
        """The ids of a choice's tokens, where the client wants them."""
        return {"token_ids": self._told_of(delta, delta.token_ids)} if self._tells_tokens else {}

    def _told_of(self, delta: Delta, values: Sequence[T]) -> list[T]:
        """The part of `values`, one for each of a delta's tokens, that is told: where reasoning is left out, its tokens
        are too."""
        if self._body.include_reasoning is not False:
            return list(values)
        hidden = frozenset(delta.reasoning_places)
        return [value for place, value in enumerate(values) if place not in hidden]

    def _make_logprobs(self, index: int, delta: Delta) -> Any:
        """None: there are none to tell."""
        pairs = list(zip(delta.token_ids, delta.logprobs, strict=True)) if delta.logprobs else []
        told = self._told_of(delta, pairs)
        token_ids, logprobs = zip(*told, strict=True) if told else ((), ())
        return self.make_logprobs(index, token_ids, logprobs) if told else None

    def _make_whole(self, index: int, delta: Delta, logprobs: Any) -> dict[str, Any]:
        events = self._read(index, delta)
        choice = self.make_choice(index, delta.text, logprobs, self._reason(index, delta), chunk=False)
        choice |= self.make_stop_reason(index, delta) | self.make_tokens(index, delta)
        message = choice["message"]
        if thought := "".join(event.text for event in events if isinstance(event, Reasoning)):
            message |= dict.fromkeys(self._reasoning_fields, thought)
        if made := _whole_calls(events):
            message["tool_calls"] = made
        if (thought or made) and not delta.text.strip():
            message["content"] = None
        if echoed := self._body.echoed:
            message["content"] = echoed + (message["content"] or "")
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
        piece = self._token_text(token_id)[1]
        return {"token": self._token_name(token_id), "logprob": logprob, "bytes": list(piece)}


def _deltas_of(events: Sequence[Event], reasoning_fields: Sequence[str]) -> list[dict[str, Any]]:
    """`delta` of one chunk per event."""
    deltas: list[dict[str, Any]] = []
    for event in events:
        match event:
            case Text(text):
                deltas.append({"content": text})
            case Reasoning(text):
                deltas.append(dict.fromkeys(reasoning_fields, text))
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
