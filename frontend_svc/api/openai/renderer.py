"""Answers of completions and chat completions. The constant part of a stream's chunks is rendered once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson

from frontend_svc.api.openai.schema import CommonBody
from frontend_svc.api.openai.usage import Usage, Usages
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import DEAD_END, Delta, Finished, TokenLogprobs
from frontend_svc.requests.sessions.session import Session
from frontend_svc.text.tokenizer import Tokenizer
from signalbox import __version__
from signalbox.errors import SignalboxError, openai_code_of, status_of
from signalbox.protocol.enums import FinishReason

DONE = b"data: [DONE]\n\n"


class ChoiceRenderer:
    """Renders the choices of one call, whole or as chunks; each endpoint says how one choice looks."""

    kind = ""
    """`object` of a whole answer."""
    chunk_kind = ""
    """`object` of a chunk of a stream."""

    def __init__(self, body: CommonBody, choices: Choices, tokenizer: Tokenizer | None) -> None:
        request = choices.sessions[0].request
        self._head = {
            "id": request.request_id,
            "object": self.kind,
            "created": int(time.time()),
            "model": request.model,
            "system_fingerprint": fingerprint_of(request.model, tokenizer),
        }
        self._choices = choices
        self._tokenizer = tokenizer
        self._usages = body.usages
        self._tells_tokens = bool(body.return_token_ids)
        self._names_tokens_by_id = tokenizer is None or bool(body.return_tokens_as_token_ids)
        self._usage = Usage(choices)
        chunk_head = orjson.dumps(self._head | {"object": self.chunk_kind})
        self._chunk_head = b"data: " + chunk_head[:-1] + b',"choices":'
        self._texts: dict[int, tuple[bytes, bytes]] = {}
        """What stands around the text in a chunk of nothing but text, by the choice's index."""

    def make_choice(
        self, index: int, text: str, logprobs: Any, reason: str | None, *, chunk: bool
    ) -> dict[str, Any]:
        """One element of `choices`."""
        raise NotImplementedError

    def make_logprobs(
        self, index: int, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]
    ) -> Any:
        """The `logprobs` of a choice; None stands for the first token of a prompt."""
        raise NotImplementedError

    def render_first(self) -> bytes:
        """The events that come before any delta; empty if there are none."""
        return b""

    def render_deltas(self, news: Sequence[tuple[int, Delta]]) -> bytes:
        """The events of what the choices have; empty if it tells nothing."""
        return b"".join([self.render_delta(index, delta) for index, delta in news])

    def render_delta(self, index: int, delta: Delta) -> bytes:
        """The events of one choice's delta."""
        self._usage.add(index, delta)
        if delta.finished is None and not delta.logprobs and not self._tells_tokens:
            return self.render_text(index, delta.text) if delta.text else b""
        reason = None if delta.finished is None else reason_of(delta.finished)
        made = self.make_logprobs(index, delta.token_ids, delta.logprobs) if delta.logprobs else None
        choice = self.make_choice(index, delta.text, made, reason, chunk=True)
        return self.render_choice(
            choice | self.make_stop_reason(index, delta) | self.make_tokens(index, delta)
        )

    def render_text(self, index: int, text: str) -> bytes:
        """The event of nothing but text, which is most of them."""
        if index not in self._texts:
            template = orjson.dumps([self.make_choice(index, "\0", None, None, chunk=True)])
            before, after = template.split(b'"\\u0000"')
            self._texts[index] = (self._chunk_head + before, after)
        head, tail = self._texts[index]
        return head + orjson.dumps(text) + tail + self._tail()

    def render_choice(self, choice: dict[str, Any], beside: bytes = b"") -> bytes:
        """The event of any choice; `beside` are fields behind `choices`."""
        return self._chunk_head + orjson.dumps([choice]) + beside + self._tail()

    def render_end(self) -> bytes:
        """What follows the last delta."""
        if self._usages is Usages.NONE:
            return DONE
        return self._chunk_head + b'[],"usage":' + orjson.dumps(self._usage.render()) + b"}\n\n" + DONE

    def render_error(self, error: SignalboxError) -> bytes:
        """What follows the last delta when the call failed."""
        return b"data: " + orjson.dumps(make_error(error)) + b"\n\n" + DONE

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""
        choices = []
        for index, delta in enumerate(outputs):
            assert delta.finished is not None
            self._usage.add(index, delta)
            made = self.make_logprobs(index, delta.token_ids, delta.logprobs) if delta.logprobs else None
            choice = self.make_choice(index, delta.text, made, reason_of(delta.finished), chunk=False)
            choices.append(choice | self.make_stop_reason(index, delta) | self.make_tokens(index, delta))
        return orjson.dumps(self._head | {"choices": choices, "usage": self._usage.render()})

    def make_stop_reason(self, index: int, delta: Delta) -> dict[str, Any]:
        """What vLLM has beside the reason why a choice ended; nothing before that."""
        if delta.finished is None:
            return {}
        return {"stop_reason": stop_reason_of(self._choices.sessions[index], delta.finished)}

    def make_tokens(self, index: int, delta: Delta) -> dict[str, Any]:
        """The ids of a choice's tokens, where the client wants them."""
        return {"token_ids": delta.token_ids} if self._tells_tokens else {}

    def prompt_tokens(self, index: int) -> list[int]:
        """The ids of a choice's prompt."""
        return memoryview(self._choices.sessions[index].request.prompt).cast("i").tolist()

    def _tail(self) -> bytes:
        if self._usages is Usages.NONE:
            return b"}\n\n"
        if self._usages is Usages.LAST:
            return b',"usage":null}\n\n'
        return b',"usage":' + orjson.dumps(self._usage.render()) + b"}\n\n"

    def _token_name(self, token_id: int) -> str:
        """How `logprobs` call a token."""
        return f"token_id:{token_id}" if self._names_tokens_by_id else self._token_text(token_id)[0]

    def _token_text(self, token_id: int) -> tuple[str, bytes]:
        """A token by itself; without a tokenizer its number."""
        if self._tokenizer is None:
            return f"token_id:{token_id}", b""
        piece = self._tokenizer.piece(token_id)
        return piece.decode(errors="replace"), piece

    def make_prompt_logprobs(self, index: int, delta: Delta, num_top: int) -> list[dict[str, Any] | None]:
        """vLLM's: by token id, the prompt's own token included; nothing for the first one."""
        made: list[dict[str, Any] | None] = [None]
        for token_id, item in zip(self.prompt_tokens(index)[1:], delta.prompt_logprobs, strict=True):
            entries = {token_id: (item.logprob, item.rank)}
            top = zip(item.top_token_ids[:num_top], item.top_logprobs, strict=False)
            for rank, (top_id, logprob) in enumerate(top, 1):
                entries.setdefault(top_id, (logprob, rank))
            made.append(
                {
                    str(key): {
                        "logprob": logprob,
                        "rank": rank,
                        "decoded_token": self._token_text(key)[0],
                    }
                    for key, (logprob, rank) in entries.items()
                }
            )
        return made


def reason_of(finished: Finished) -> str:
    """OpenAI's word, and ours for a dead end; errors and aborts are not answers and do not get here in whole ones."""
    if finished.reason is FinishReason.DEAD_END:
        return DEAD_END
    return "stop" if finished.reason is FinishReason.STOP else "length"


@cache
def fingerprint_of(model: str, tokenizer: Tokenizer | None) -> str:
    """Changes with the server's version, the model's name and its tokenizer, and with nothing else."""
    source = f"{__version__} {model} {tokenizer.fingerprint if tokenizer else ''}"
    return f"fp_{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def stop_reason_of(session: Session, finished: Finished) -> str | int | None:
    """The stop string, or the one of the client's stop tokens, that ended the output, or why it came to a dead end;
    None: something else ended it."""
    if finished.dead_end:
        return finished.dead_end
    if finished.stop or finished.reason is not FinishReason.STOP or not session.output:
        return finished.stop or None
    token = session.output[-1]
    return token if token in session.request.sampling.get("stop_token_ids", ()) else None


def make_error(error: SignalboxError) -> dict[str, Any]:
    """The body with which OpenAI's API tells an error."""
    return {
        "error": {
            "message": error.message,
            "type": status_of(error).openai_type,
            "param": error.field or None,
            "code": openai_code_of(error),
        }
    }
