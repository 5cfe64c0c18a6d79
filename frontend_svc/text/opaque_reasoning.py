"""Reasoning in the form in which clients carry it unread: a mark, then its text in base64.

Nothing is hidden from anybody: it is for clients that give back only what they cannot read.
"""

from __future__ import annotations

import base64
import binascii

_MARK = "signalbox1."


def pack_reasoning(text: str) -> str:
    """The form of `text`."""
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def unpack_reasoning(packed: str) -> str:
    """The text; empty for what another server has made."""
    if not packed.startswith(_MARK):
        return ""
    try:
        return base64.b64decode(packed[len(_MARK) :], altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
