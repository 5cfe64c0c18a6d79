"""A bound on reasoning, in the tokens of a model: its worker counts them, and forces the end."""

from __future__ import annotations

from dataclasses import dataclass

from frontend_svc.text.parsing import harmony
from frontend_svc.text.parsing.language import Language
from signalbox.errors import UnsupportedError


@dataclass(frozen=True)
class ReasoningBudget:
    """What a worker has to know; named as in generation.proto."""

    max_tokens: int
    is_open: bool
    """The prompt ends within reasoning."""
    begin_token_ids: tuple[int, ...]
    end_token_ids: tuple[int, ...]
    then_token_ids: tuple[int, ...] = ()
    field: str = "reasoning_budget"
    """How this face calls the bound, for errors; no worker is told."""


def reasoning_budget(language: Language, max_tokens: int, within: bool, field: str) -> ReasoningBudget:
    """The bound for one request. Raises UnsupportedError, which names `field`, for a model that is not known to reason,
    or whose tags are no tokens."""
    if language.is_harmony:
        words = language.words
        channel, message, end, start = (
            (language.token_ids[tag],)
            for tag in (harmony.CHANNEL, harmony.MESSAGE, harmony.FINISH, harmony.START)
        )
        return ReasoningBudget(
            max_tokens,
            False,
            channel + words["analysis"] + message,
            end + start + words["assistant"] + channel,
            (words["final"][0], words["commentary"][0]),
            field,
        )
    tags = language.reasoning_tags
    if tags is None:
        raise UnsupportedError(f"{field}: the model is not known to reason", field=field)
    if not {tags.begin, tags.end} <= set(language.token_ids):
        message_text = f"{field}: {tags.begin} and {tags.end} are no tokens of the model's vocabulary"
        raise UnsupportedError(message_text, field=field)
    begin, finish = language.token_ids[tags.begin], language.token_ids[tags.end]
    return ReasoningBudget(max_tokens, within, (begin,), (finish,), field=field)
