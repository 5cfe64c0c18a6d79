"""The pulls that a source has agreed to, by their tokens."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worker_svc.transfer.channels.streams import Stream
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.row_copies import I64

TOKEN_BYTES = 16
MayRead = Callable[[int, I64], bool]
"""A callable that says whether a pull may have these blocks of a group now, and until it is withdrawn. Threads of
channels call it."""


def new_token() -> bytes:
    """A secret that nobody guesses, for one pull."""
    return secrets.token_bytes(TOKEN_BYTES)


class Pull:
    """One pull at its source."""

    def __init__(self, may_read: MayRead) -> None:
        self.may_read = may_read
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        """Held while blocks are read."""
        self._stream: Stream | None = None
        self._is_withdrawn = False

    def attach(self, stream: Stream) -> None:
        """Makes a stream the pull's only one. TransferError if it has one, or has been withdrawn."""
        with self._lock:
            if self._is_withdrawn or self._stream is not None:
                raise TransferError("the pull has a channel already, or has ended")
            self._stream = stream

    def detach(self) -> None:
        """The stream has ended."""
        with self._lock:
            self._stream = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While it lasts blocks are read. TransferError if the pull has been withdrawn."""
        with self._reading:
            if self._is_withdrawn:
                raise TransferError("the pull has been withdrawn")
            yield

    def withdraw(self) -> None:
        """Returns when nothing reads, and nothing will."""
        with self._lock:
            self._is_withdrawn = True
            if self._stream is not None:
                self._stream.abort()
        with self._reading:
            pass


class Registrations:
    """All pulls of a source. Any thread may ask."""

    def __init__(self) -> None:
        self._pulls: dict[bytes, Pull] = {}
        self._lock = threading.Lock()

    def add(self, token: bytes, may_read: MayRead) -> None:
        """Agrees to a pull."""
        assert len(token) == TOKEN_BYTES
        with self._lock:
            assert token not in self._pulls, "a token is for one pull"
            self._pulls[token] = Pull(may_read)

    def find(self, token: bytes) -> Pull:
        """The pull of a token, looked for in a time that does not tell how much of it was right. TransferError."""
        with self._lock:
            pulls = list(self._pulls.items())
        found = None
        for known, pull in pulls:
            if hmac.compare_digest(known, token):
                found = pull
        if found is None:
            raise TransferError("a token of no pull")
        return found

    def withdraw(self, token: bytes) -> None:
        """Returns when nothing of the pull is read here, and nothing will be. Withdrawn twice is once."""
        with self._lock:
            pull = self._pulls.pop(token, None)
        if pull is not None:
            pull.withdraw()

    def withdraw_all(self) -> None:
        """Withdraws every pull."""
        for token in list(self._pulls):
            self.withdraw(token)
