"""What the links to scheduler and workers share: when to dial again, and what to log of the reason."""

from __future__ import annotations

import random

import grpc

from signalbox.errors import InvalidRequestError
from signalbox.links.versions import check_versions
from signalbox.v1 import generation_pb2

"""What a stream's `read` returns at its end."""
FIRST_BACKOFF_S = 0.05
LARGEST_BACKOFF_S = 1.0


class Backoff:
    """Doubles from FIRST_BACKOFF_S to LARGEST_BACKOFF_S, with a random part so that not all come at once."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def is_first(self) -> bool:
        """No attempt has failed since the link was last up."""
        return self._failures == 0

    def reset(self) -> None:
        """Begins anew with the shortest wait: the link is up."""
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait before another attempt: longer each time, until `reset`."""
        delay = min(LARGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)


def check_spoken(theirs: generation_pb2.ProtocolVersions, who: str) -> None:
    """Raises ConnectionError when we and another process do not understand each other."""
    try:
        check_versions(theirs, who, "this frontend")
    except InvalidRequestError as error:
        raise ConnectionError(error.message) from None


def describe(error: BaseException) -> str:
    """An error as one line, for the log."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
