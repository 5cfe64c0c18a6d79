"""Which certificate a name belongs to: nobody else gets what is the name's."""

from __future__ import annotations

from signalbox.errors import PermissionDeniedError

MOST_NAMES = 256
"""Most names of one certificate: a process has a new UUID with each start. What is above it pushes out the
certificate's own oldest name, so nobody makes us forget another's."""
Owner = tuple[str, ...]
"""Names in a certificate; empty: plaintext."""


class Owners:
    """Names of processes, such as the UUIDs of frontends, by the names in the certificates that used them first. Those
    whose certificates say the same cannot be told apart; those with names of their own can."""

    def __init__(self) -> None:
        self._owner: dict[str, Owner] = {}
        self._names: dict[Owner, dict[str, None]] = {}
        """The names of each certificate, the longest unused first."""

    def check(self, name: str, owner: Owner) -> None:
        """Raises PermissionDeniedError when `name` belongs to another certificate. owner: names of the caller's; empty,
        as in plaintext: it owns nothing, and is not asked."""
        if not owner:
            return
        if self._owner.setdefault(name, owner) != owner:
            raise PermissionDeniedError(f"{name} belongs to another certificate than this caller's")
        names = self._names.setdefault(owner, {})
        names.pop(name, None)
        names[name] = None
        if len(names) > MOST_NAMES:
            oldest = next(iter(names))
            del names[oldest], self._owner[oldest]


def check_worker(own: str | None, worker_id: str, field: str = "hello.worker_id") -> None:
    """Raises PermissionDeniedError for a worker that says another id than the one which its certificate is for. own:
    that one; None: its certificate is for any. field: where it says it."""
    if own is not None and worker_id != own:
        message = f"the certificate is for worker {own}, and not {worker_id}"
        raise PermissionDeniedError(message, field=field)
