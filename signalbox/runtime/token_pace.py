"""What computing a token of a prompt takes, as steps have shown. Pure: the caller has the clock."""

from __future__ import annotations

WEIGHT = 0.3
"""Share that a new measurement has."""
LEAST_TOKENS = 64
"""A step with fewer tokens of prompts says little of what a token costs."""


class TokenPace:
    """The time of one worker, for whoever may have blocks brought instead of computing them."""

    def __init__(self, token_us: float = 0.0) -> None:
        self.token_us = token_us
        """Microseconds for a token of a prompt; 0: not known."""

    def computed(self, num_tokens: int, num_rows: int, execute_us: int) -> None:
        """A step computed so many tokens of prompts, beside rows that decode. Its cheapest counts: short contexts cost
        less than long ones, and nothing is to be brought that would be computed sooner."""
        if num_tokens < max(LEAST_TOKENS, 8 * num_rows) or not execute_us:
            return
        token_us = execute_us / num_tokens
        rises = token_us > self.token_us > 0
        self.token_us += (token_us - self.token_us) * (WEIGHT / 4 if rises else 1.0)
