"""What goes wrong when blocks travel."""

from __future__ import annotations

from signalbox.protocol.enums import ReadFault


class TransferError(Exception):
    """Blocks did not arrive whole, or never will by this channel; what was to be written holds garbage then. The
    message is a sentence without secrets. `fault`: what it says of other requests between the two workers."""

    def __init__(self, message: str, fault: ReadFault = ReadFault.PAIR) -> None:
        super().__init__(message)
        self.fault = fault
