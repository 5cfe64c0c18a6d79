"""Token counts of one call, as OpenAI's API tells them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta


class Usages(Enum):
    """Where a stream tells token counts."""

    NONE = auto()
    LAST = auto()
    """Usage comes in a chunk of its own, behind all others."""
    ALWAYS = auto()
    """There, and what it is so far in every chunk."""


class Usage:
    """Counts prompts once each, and the output of all choices."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._counts = [0] * len(choices.sessions)
        self.num_reasoning_tokens = 0
        """Output tokens of all choices so far that are reasoning."""

    def add(self, index: int, delta: Delta) -> None:
        """Counts what has come of one choice."""
        self.num_reasoning_tokens += delta.num_reasoning_tokens
        if delta.finished is not None:
            self._counts[index] = delta.finished.num_output_tokens
        else:
            self._counts[index] += len(delta.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return self._choices.num_prompt_tokens

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache saved."""
        return self._choices.num_cached_tokens

    @property
    def num_output_tokens(self) -> int:
        """Output tokens of all choices so far."""
        return sum(self._counts)

    def render(self) -> dict[str, Any]:
        """The `usage` of completions and chat completions."""
        prompt, output = self.num_prompt_tokens, self.num_output_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": self.num_cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.num_reasoning_tokens},
        }
