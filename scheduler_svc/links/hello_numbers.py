"""Which hello of a process is its newest: a network may bring one late that a link has sent which is no more."""

from __future__ import annotations

from collections import OrderedDict

from signalbox.errors import UnavailableError

MAX_PROCESSES = 4096
"""Processes that said hello last; of others nothing is known."""


class HelloNumbers:
    """The highest number of a hello of each process, worker or frontend (J12)."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, int] = OrderedDict()

    def meet(self, instance: str, number: int) -> None:
        """A process says hello; 0: it does not say for which time. Raises UnavailableError when it has said a later
        one, and nothing has changed then."""
        if not number:
            return
        newest = self._of.get(instance, 0)
        if number < newest:
            raise UnavailableError(f"hello {number} of process {instance} comes late: it has said {newest}")
        self._of[instance] = number
        self._of.move_to_end(instance)
        if len(self._of) > MAX_PROCESSES:
            self._of.popitem(last=False)
