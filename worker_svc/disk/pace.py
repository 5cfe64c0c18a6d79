"""How long loads take, and how long computing takes, as measured on this machine. Pure: the caller has the clock."""

from __future__ import annotations

from signalbox.runtime.token_pace import WEIGHT, TokenPace

BASE_US = 2000
"""What a group of loads costs besides its bytes: a step that orders it, and an event that ends it."""
LEAST_BYTES = 1 << 16


class Pace(TokenPace):
    """Times per byte loaded and per token computed; 0: none was measured."""

    def __init__(self, token_us: float = 0.0) -> None:
        super().__init__(token_us)
        self.byte_us = 0.0

    def loaded(self, num_bytes: int, seconds: float) -> None:
        """So many bytes were read, checked and copied to their blocks."""
        if num_bytes < LEAST_BYTES:
            return
        byte_us = seconds * 1e6 / num_bytes
        self.byte_us += (byte_us - self.byte_us) * (WEIGHT if self.byte_us else 1.0)

    def measured_anew(self, num_bytes: int, seconds: float) -> None:
        """As `loaded`; what was measured before is too old to count."""
        if num_bytes >= LEAST_BYTES:
            self.byte_us = 0.0
            self.loaded(num_bytes, seconds)

    def block_us(self, num_bytes: int) -> float:
        """Microseconds to load a block of so many bytes; 0: nothing was loaded yet."""
        return self.byte_us * num_bytes
