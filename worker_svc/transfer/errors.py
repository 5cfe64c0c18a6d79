"""What goes wrong when blocks travel."""

from __future__ import annotations


class TransferError(Exception):
    """Blocks did not arrive whole, or never will by this channel; what was to be written holds garbage then. The
    message is a sentence without secrets."""
