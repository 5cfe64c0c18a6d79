"""The one end of a worker that no crash has caused, and nobody has asked for."""

from __future__ import annotations


class UnfitError(Exception):
    """Request after request had no finite numbers: the process has to end, in good order, for another to take its
    place."""
