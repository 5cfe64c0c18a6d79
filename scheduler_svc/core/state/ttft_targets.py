"""Targets of the time to the first token, by priority: the setting `ttft_targets`."""

from __future__ import annotations

import math


def parse_ttft_targets(text: str) -> dict[int, float]:
    """`0:500,1:2000`: priority numbers, and the milliseconds within which their requests are to have a first token.
    Returns seconds by priority; nothing for the empty string.

    Raises ValueError with a sentence for what is no such pair, no time above 0, or a number that is named twice.
    """
    targets: dict[int, float] = {}
    for part in text.split(",") if text else ():
        number, colon, value = part.partition(":")
        try:
            priority, milliseconds = int(number), float(value)
        except ValueError:
            raise ValueError(f"ttft_targets: {part!r} is not PRIORITY:MILLISECONDS") from None
        if not colon or not 0 < milliseconds < math.inf:
            raise ValueError(f"ttft_targets: {part!r} does not say a time above 0")
        if priority in targets:
            raise ValueError(f"ttft_targets: priority {priority} is named twice")
        targets[priority] = milliseconds / 1e3
    return targets
