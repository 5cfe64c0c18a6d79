"""How long loads take, and how long computing takes, as measured on this machine. Pure: the caller has the clock."""

from __future__ import annotations

BASE_US = 2000
"""What a group of loads costs besides its bytes: a step that orders it, and an event that ends it."""
WEIGHT = 0.3
"""Share that a new measurement has."""
LEAST_TOKENS = 64
"""A step with fewer tokens of prompts says little of what a token costs."""
LEAST_BYTES = 1 << 16


class Pace:
    """Times per byte loaded and per token computed; 0: none was measured."""

    def __init__(self, token_us: float = 0.0) -> None:
        self.token_us = token_us
        self.byte_us = 0.0

    def loaded(self, num_bytes: int, seconds: float) -> None:
        """So many bytes were read, checked and copied to their blocks."""
        if num_bytes < LEAST_BYTES:
            return
        byte_us = seconds * 1e6 / num_bytes
        self.byte_us += (byte_us - self.byte_us) * (WEIGHT if self.byte_us else 1.0)

    def computed(self, num_tokens: int, num_rows: int, execute_us: int) -> None:
        """A step computed so many tokens of prompts, beside rows that decode. Its cheapest counts: short contexts cost
        less than long ones, and nothing is to be loaded that would be computed sooner."""
        if num_tokens < max(LEAST_TOKENS, 8 * num_rows) or not execute_us:
            return
        token_us = execute_us / num_tokens
        rises = token_us > self.token_us > 0
        self.token_us += (token_us - self.token_us) * (WEIGHT / 4 if rises else 1.0)

    def block_us(self, num_bytes: int) -> float:
        """Microseconds to load a block of so many bytes; 0: nothing was loaded yet."""
        return self.byte_us * num_bytes
