"""What fails at rank 0 outside of any collective is kept until the call is over: no other rank has to hear of it."""

from __future__ import annotations

from types import TracebackType


class FirstFailure:
    """A context manager, to be entered any number of times, that keeps the first exception and lets none out."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def __enter__(self) -> None:
        """Nothing is needed."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """True: the exception is kept, or one before it was. What is no `Exception` is let out."""
        if not isinstance(error, Exception):
            return False
        if self._error is None:
            self._error = error
        return True

    def check(self) -> None:
        """Raises the exception that was kept."""
        if self._error is not None:
            raise self._error
