"""What a slot can be used for, and why one that runs can be paused. Plain numbers: looking a member of an Enum up costs
a microsecond's good part."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler_svc.core.state.requests.request import Request


class SlotState:
    """What a slot is used for."""

    FREE: Final = 0
    PREFILL: Final = 1
    DECODE: Final = 2
    PREEMPTED: Final = 3
    """Placed, and without blocks: they were taken, or it has not started yet."""
    RELEASING: Final = 4
    """Ended or cancelled: named in the next delta, free when that step's report is back."""
    PREPARING: Final = 5
    """Placed, and not started: the worker compiles its grammar, or there was no room since it said that it has."""
    IMPORTING: Final = 6
    """Kept for a request that another worker has and that is to go on here. It may have blocks, and is no row."""


RUNNING = (SlotState.PREFILL, SlotState.DECODE)
"""States of slots that hold blocks."""
ENDED = (SlotState.FREE, SlotState.RELEASING)
"""States of slots whose request has ended."""

OWNING = np.isin(np.arange(7), (1, 2, 3, 5))
"""By state: the slot has a request that is the worker's own and has not ended."""

HELD = np.uint8(1)
"""Paused because blocks are short."""
CLIENT_PAUSED = np.uint8(2)
"""Paused because its client reads too slowly."""
DISPLACED = np.uint8(4)
"""Paused because somebody of a higher class has its place; it keeps its blocks while nobody needs them."""
SUSPENDED = np.uint8(8)
"""Paused because its class is suspended by safe mode."""
FROZEN = np.uint8(16)
"""Paused because another worker takes the request over; nobody takes its place or its blocks."""
RESTING = CLIENT_PAUSED | SUSPENDED
"""The slot does not want to run: whoever needs its place or its blocks takes them."""
NO_PLACE = np.iinfo(np.int64).min
"""`active_priority` of slots that have no place in the batch."""
KEPT_PLACE = NO_PLACE + 1
"""`active_priority` of slots whose place nobody takes: above every class."""


def rest_of(request: Request) -> np.uint8:
    """Why a request rests, as flags; 0: it does not."""
    client = CLIENT_PAUSED if request.client_paused else np.uint8(0)
    return client | (SUSPENDED if request.suspended else np.uint8(0))
