"""How the columns of messages are written, where more than one service has to know (protos/signalbox/v1)."""

from __future__ import annotations

HOST_BIT = 1 << 31
"""Set in a block id of a copy: the block is one of the host tier."""
