"""Answers of the OpenAI-compatible API. The constant part of a stream's chunks is rendered once."""

from __future__ import annotations

import time
from typing import Any

import orjson

from frontend_svc.events import Delta, Finished, FinishReason, TokenLogprobs
from frontend_svc.tokenizer import Tokenizer
from signalbox.errors import SignalboxError, code_of, status_of

DONE = b"data: [DONE]\n\n"


class Format:
    """What differs between the two endpoints, and the answers of one request."""

    kind = ""
    """`object` of a whole answer."""
    chunk_kind = ""
    """`object` of a chunk."""

    def __init__(
        self, request_id: str, model: str, tokenizer: Tokenizer | None, *, wants_usage: bool
    ) -> None:
        self._head = {"id": request_id, "object": self.kind, "created": int(time.time()), "model": model}
        self._tokenizer = tokenizer
        self._wants_usage = wants_usage
        self._tail = b',"usage":null}\n\n' if wants_usage else b"}\n\n"
        chunk_head = orjson.dumps(self._head | {"object": self.chunk_kind})
        self._chunk_head = b"data: " + chunk_head[:-1] + b',"choices":'
        before, after = orjson.dumps([self.make_choice("\0", None, None, chunk=True)]).split(b'"\\u0000"')
        self._text_head = self._chunk_head + before
        self._text_tail = after + self._tail

    def make_choice(self, text: str, logprobs: Any, reason: str | None, *, chunk: bool) -> dict[str, Any]:
        """The one element of `choices`."""
        raise NotImplementedError

    def make_logprobs(self, token_ids: list[int], logprobs: list[TokenLogprobs]) -> Any:
        """The `logprobs` of a choice."""
        raise NotImplementedError

    def render_chunk(self, delta: Delta) -> bytes:
        """The event of a delta; empty if it tells nothing."""
        if delta.finished is None and not delta.logprobs:
            if not delta.text:
                return b""
            return self._text_head + orjson.dumps(delta.text) + self._text_tail
        reason = None if delta.finished is None else reason_of(delta.finished)
        logprobs = self.make_logprobs(delta.token_ids, delta.logprobs) if delta.logprobs else None
        choice = self.make_choice(delta.text, logprobs, reason, chunk=True)
        return self._chunk_head + orjson.dumps([choice]) + self._tail

    def render_first(self) -> bytes:
        """The event that comes before any delta; empty if there is none."""
        return b""

    def render_end(self, finished: Finished) -> bytes:
        """What follows the last delta."""
        if not self._wants_usage:
            return DONE
        return self._chunk_head + b'[],"usage":' + orjson.dumps(make_usage(finished)) + b"}\n\n" + DONE

    def render_whole(
        self, text: str, token_ids: list[int], logprobs: list[TokenLogprobs], finished: Finished
    ) -> bytes:
        """The body of an answer that is not streamed."""
        made = self.make_logprobs(token_ids, logprobs) if logprobs else None
        choice = self.make_choice(text, made, reason_of(finished), chunk=False)
        return orjson.dumps(self._head | {"choices": [choice], "usage": make_usage(finished)})

    def _token_text(self, token_id: int) -> tuple[str, bytes]:
        """A token by itself; without a tokenizer its number."""
        if self._tokenizer is None:
            return f"token_id:{token_id}", b""
        piece = self._tokenizer.piece(token_id)
        return piece.decode(errors="replace"), piece


class CompletionFormat(Format):
    """Answers of /v1/completions."""

    kind = chunk_kind = "text_completion"

    def __init__(
        self, request_id: str, model: str, tokenizer: Tokenizer | None, *, wants_usage: bool
    ) -> None:
        super().__init__(request_id, model, tokenizer, wants_usage=wants_usage)
        self._offset = 0

    def make_choice(self, text: str, logprobs: Any, reason: str | None, *, chunk: bool) -> dict[str, Any]:
        """See Format."""
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def make_logprobs(self, token_ids: list[int], logprobs: list[TokenLogprobs]) -> dict[str, Any]:
        """Columns; offsets count the characters of the tokens taken by themselves."""
        tokens = [self._token_text(token_id)[0] for token_id in token_ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [item.logprob for item in logprobs],
            "top_logprobs": [self._make_top(item) for item in logprobs],
            "text_offset": offsets,
        }

    def _make_top(self, item: TokenLogprobs) -> dict[str, float]:
        top: dict[str, float] = {}
        for token_id, logprob in zip(item.top_token_ids, item.top_logprobs, strict=True):
            # Two tokens may read alike, e.g. parts of characters: the likelier one stays.
            top.setdefault(self._token_text(token_id)[0], logprob)
        return top


class ChatFormat(Format):
    """Answers of /v1/chat/completions."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def make_choice(self, text: str, logprobs: Any, reason: str | None, *, chunk: bool) -> dict[str, Any]:
        """See Format."""
        if not chunk:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            return {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": reason}
        delta = {"content": text} if text else {}
        return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def make_logprobs(self, token_ids: list[int], logprobs: list[TokenLogprobs]) -> dict[str, Any]:
        """One object per token."""
        content = []
        for token_id, item in zip(token_ids, logprobs, strict=True):
            top = zip(item.top_token_ids, item.top_logprobs, strict=True)
            content.append(
                self._make_token(token_id, item.logprob)
                | {"top_logprobs": [self._make_token(top_id, logprob) for top_id, logprob in top]}
            )
        return {"content": content, "refusal": None}

    def render_first(self) -> bytes:
        """The role comes first."""
        choice = self.make_choice("", None, None, chunk=True) | {
            "delta": {"role": "assistant", "content": ""}
        }
        return self._chunk_head + orjson.dumps([choice]) + self._tail

    def _make_token(self, token_id: int, logprob: float) -> dict[str, Any]:
        text, piece = self._token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(piece)}


def reason_of(finished: Finished) -> str:
    """OpenAI's word; errors and aborts are not answers and do not get here in whole ones."""
    return "stop" if finished.reason is FinishReason.STOP else "length"


def make_usage(finished: Finished) -> dict[str, Any]:
    """Token counts of one request."""
    return {
        "prompt_tokens": finished.num_prompt_tokens,
        "completion_tokens": finished.num_output_tokens,
        "total_tokens": finished.num_prompt_tokens + finished.num_output_tokens,
        "prompt_tokens_details": {"cached_tokens": finished.num_cached_tokens},
    }


def make_error(error: SignalboxError) -> dict[str, Any]:
    """OpenAI's error body."""
    return {
        "error": {
            "message": error.message,
            "type": status_of(error).openai_type,
            "param": error.field or None,
            "code": code_of(error),
        }
    }
