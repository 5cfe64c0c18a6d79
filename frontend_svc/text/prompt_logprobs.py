"""Log-probabilities of a prompt, put together from the chunks in which the worker computes it."""

from __future__ import annotations

from collections.abc import Sequence

from frontend_svc.requests.events import TokenLogprobs


class PromptLogprobs:
    """One per prompt token but the first, which nothing predicts. Given to the client once, when all are there."""

    def __init__(self, num_wanted: int) -> None:
        self._num_wanted = num_wanted
        self._known: list[TokenLogprobs] = []
        self.is_missing = num_wanted > 0
        """Some are still to come."""

    def restart(self) -> None:
        """A new attempt sends them from the start again; those that the client has already are skipped."""
        self._known = []

    def add(self, start: int, logprobs: Sequence[TokenLogprobs]) -> list[TokenLogprobs]:
        """Takes those of the prompt tokens [start, start + len(logprobs)); repeated ones are skipped.

        Returns all, once they are complete, and nothing before and after. Raises ValueError when some were left out.
        """
        if not self.is_missing:
            return []
        next_start = 1 + len(self._known)
        if start > next_start:
            raise ValueError(f"log-probabilities of prompt tokens {next_start} to {start - 1} were lost")
        self._known += logprobs[next_start - start :]
        if len(self._known) < self._num_wanted:
            return []
        whole, self._known, self.is_missing = self._known[: self._num_wanted], [], False
        return whole
