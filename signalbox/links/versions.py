"""Which versions of the protocol this release speaks, and whether another process speaks one of them (R10)."""

from __future__ import annotations

from typing import NoReturn

from signalbox import __version__
from signalbox.errors import InvalidRequestError
from signalbox.v1 import generation_pb2

NEWEST = 3
"""Raised with each change that the release before would misread. New fields that may be ignored need no new version."""
OLDEST = 1
"""Oldest version that is spoken still."""
WITH_GROUPS = 2
"""The first version with groups of blocks: a worker that has them speaks none before it."""
WITH_LANES = 3
"""The first version with lanes: a worker of several speaks none before it."""
FIRST = 1
"""The version of those that do not say theirs."""
FIELD = "protocol"
MAX_RELEASE_CHARS = 32


def ours(*, has_groups: bool = False, num_lanes: int = 1) -> generation_pb2.ProtocolVersions:
    """The versions of this release, for a hello or its answer; `has_groups`, `num_lanes`: of a worker."""
    oldest = max(OLDEST, WITH_GROUPS if has_groups else FIRST, WITH_LANES if num_lanes > 1 else FIRST)
    return generation_pb2.ProtocolVersions(newest=NEWEST, oldest=oldest, release=__version__)


def check_versions(theirs: generation_pb2.ProtocolVersions, who: str, us: str) -> None:
    """Raises InvalidRequestError when no version is spoken by both. who, us: the two processes, for the sentence."""
    newest = theirs.newest or FIRST
    oldest = theirs.oldest or newest
    if max(oldest, OLDEST) > min(newest, NEWEST):
        _refuse(f"{who} {_range(oldest, newest, theirs.release)}, {us} {_range(OLDEST, NEWEST, __version__)}")


def _refuse(sentence: str) -> NoReturn:
    raise InvalidRequestError(f"{sentence}: no version of the protocol is spoken by both", field=FIELD)


def _range(oldest: int, newest: int, release: str) -> str:
    versions = f"version {newest}" if oldest == newest else f"versions {oldest} to {newest}"
    said = ascii(release[:MAX_RELEASE_CHARS])[1:-1] or "that does not say which it is"
    return f"speaks {versions} (release {said})"
