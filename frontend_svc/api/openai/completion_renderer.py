"""Answers of POST /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from frontend_svc.api.openai.completion_body import CompletionBody, split_prompts
from frontend_svc.api.openai.renderer import ChoiceRenderer, reason_of
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta, TokenLogprobs
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.protocol.enums import FinishReason


class CompletionRenderer(ChoiceRenderer):
    """Renders completions; with `echo`, the prompt's text and log-probabilities go ahead of the output's."""

    kind = chunk_kind = "text_completion"

    def __init__(self, body: CompletionBody, choices: Choices, tokenizer: Tokenizer | None) -> None:
        super().__init__(body, choices, tokenizer)
        self._body = body
        self._told_prompt = [False] * len(choices.sessions)
        self._prompts = _texts_of(body, tokenizer) if body.echo else []
        self._offsets = [0] * len(choices.sessions)
        """Characters of each choice's tokens so far."""
        self._echoed = [not body.echo] * len(choices.sessions)

    def make_choice(
        self, index: int, text: str, logprobs: Any, reason: str | None, *, chunk: bool
    ) -> dict[str, Any]:
        """One element of `choices`, as this endpoint has it."""
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def make_logprobs(
        self, index: int, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]
    ) -> dict[str, Any]:
        """Columns; offsets count the characters of the tokens taken by themselves."""
        tokens = [self._token_name(token_id) for token_id in token_ids]
        offsets = []
        for token_id in token_ids:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(self._token_text(token_id)[0])
        return {
            "tokens": tokens,
            "token_logprobs": [item and item.logprob for item in logprobs],
            "top_logprobs": [
                item and self._make_top(token, item) for token, item in zip(tokens, logprobs, strict=True)
            ],
            "text_offset": offsets,
        }

    def render_delta(self, index: int, delta: Delta) -> bytes:
        """The events of one choice's delta."""
        if self._body.only_prompt:
            delta = without_output(delta)
        if self._echoed[index]:
            return super().render_delta(index, delta)
        self._echoed[index] = True
        self._usage.add(index, delta)
        echoed = self._make_echoed(index, delta, delta.prompt_logprobs, chunk=True)
        return self.render_choice(
            echoed | self.make_stop_reason(index, delta) | self.make_tokens(index, delta)
        )

    def make_tokens(self, index: int, delta: Delta) -> dict[str, Any]:
        """The ids of a choice's tokens, where the client wants them; those of its prompt come with the first."""
        made = super().make_tokens(index, delta)
        if not made or self._told_prompt[index]:
            return made
        self._told_prompt[index] = True
        return made | {"prompt_token_ids": self.prompt_tokens(index)}

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""
        if self._body.only_prompt:
            outputs = [without_output(delta) for delta in outputs]
        for index, delta in enumerate(outputs):
            self._usage.add(index, delta)
        choices: list[dict[str, Any]] = []
        for start in range(0, len(outputs), self._body.num_sampled):
            group = range(start, start + self._body.num_sampled)
            for index in self._choose(outputs, group):
                choice = self._make_whole(index, outputs[index], outputs[start])
                stop = self.make_stop_reason(index, outputs[index])
                tokens = self.make_tokens(index, outputs[index])
                choices.append(choice | stop | tokens | {"index": len(choices)})
        return orjson.dumps(self._head | {"choices": choices, "usage": self._usage.render()})

    def _choose(self, outputs: Sequence[Delta], group: range) -> list[int]:
        """The best choices of one prompt, best first, if more were sampled than asked for."""
        if self._body.num_sampled == self._body.num_choices:
            return list(group)
        ranked = sorted(group, key=lambda index: mean_logprob(outputs[index]), reverse=True)
        return ranked[: self._body.num_choices]

    def _make_whole(self, index: int, delta: Delta, first: Delta) -> dict[str, Any]:
        """`first` is the first choice over the same prompt, which has the prompt's log-probabilities."""
        if self._body.echo:
            choice = self._make_echoed(index, delta, first.prompt_logprobs, chunk=False)
        else:
            has_logprobs = self._body.logprobs is not None
            made = self.make_logprobs(index, delta.token_ids, delta.logprobs) if has_logprobs else None
            assert delta.finished is not None
            choice = self.make_choice(index, delta.text, made, reason_of(delta.finished), chunk=False)
        if self._body.prompt_logprobs is not None:
            prompt = replace(delta, prompt_logprobs=first.prompt_logprobs)
            choice["prompt_logprobs"] = self.make_prompt_logprobs(index, prompt, self._body.prompt_logprobs)
        return choice

    def _make_echoed(
        self, index: int, delta: Delta, prompt_logprobs: Sequence[TokenLogprobs], *, chunk: bool
    ) -> dict[str, Any]:
        reason = None if delta.finished is None else reason_of(delta.finished)
        made = None
        if self._body.logprobs is not None:
            made = self.make_logprobs(
                index, self.prompt_tokens(index) + delta.token_ids, [None, *prompt_logprobs, *delta.logprobs]
            )
        text = self._prompts[index // self._choices.num_per_prompt] + delta.text
        return self.make_choice(index, text, made, reason, chunk=chunk)

    def _make_top(self, token: str, item: TokenLogprobs) -> dict[str, float]:
        """The likeliest tokens or those that were named, and the chosen one in any case."""
        top: dict[str, float] = {}
        num_top = len(self._body.logprob_token_ids or ()) or self._body.logprobs or 0
        for token_id, logprob in zip(item.top_token_ids[:num_top], item.top_logprobs, strict=False):
            # Two tokens may read alike, e.g. parts of characters: the likelier one stays.
            top.setdefault(self._token_name(token_id), logprob)
        top.setdefault(token, item.logprob)
        return top


def mean_logprob(delta: Delta) -> float:
    """Per output token; an output without tokens is the worst."""
    if not delta.logprobs:
        return float("-inf")
    return sum(item.logprob for item in delta.logprobs) / len(delta.logprobs)


def without_output(delta: Delta) -> Delta:
    """A delta without the one token that had to be made, for a client that wants nothing but the prompt."""
    finished = delta.finished and replace(delta.finished, num_output_tokens=0, reason=FinishReason.LENGTH)
    return replace(delta, text="", token_ids=[], logprobs=[], finished=finished)


def _texts_of(body: CompletionBody, tokenizer: Tokenizer | None) -> list[str]:
    prompts = split_prompts(body.prompt)
    return [prompt if isinstance(prompt, str) else _decode(prompt, tokenizer) for prompt in prompts]


def _decode(token_ids: list[int], tokenizer: Tokenizer | None) -> str:
    return "" if tokenizer is None else tokenizer.decode(token_ids)
