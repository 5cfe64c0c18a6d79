"""The board as server-sent events: one watch of the scheduler for all who look, while somebody does."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Callable

import orjson

from frontend_svc.links.redial import Backoff
from signalbox.board.link import watch_board
from signalbox.board.snapshot import Board
from signalbox.errors import SignalboxError, limit_reached
from signalbox.runtime.latest_value import LatestValue

log = logging.getLogger(__name__)
MAX_BOARDS = 256
"""Most boards that are open at one time."""
RETRY_S = 10.0
"""A board stays open as long as somebody looks."""


class BoardStream:
    """Fans the snapshots of the scheduler out to any number of boards."""

    def __init__(self, scheduler: Callable[[], str]) -> None:
        """`scheduler`: host:port of the one that leads now."""
        self._scheduler = scheduler
        self._newest: LatestValue[bytes] = LatestValue()
        self._task: asyncio.Task[None] | None = None
        self._num_boards = 0
        self._closed = False

    def check_room(self) -> None:
        """Raises ResourceExhaustedError when too many boards are open."""
        if self._num_boards >= MAX_BOARDS:
            raise limit_reached(f"{self._num_boards} of {MAX_BOARDS} boards are open already", RETRY_S)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """One event after another: `data` with a snapshot as JSON, or `away` while there is no scheduler. A board that
        reads slowly misses some. Ends when the frontend stops."""
        self._num_boards += 1
        if self._task is None:
            self._task = asyncio.create_task(self._keep_watching())
        try:
            seen = None
            while not self._closed:
                seen = await self._newest.other_than(seen)
                yield seen
        finally:
            self._num_boards -= 1
            if not self._num_boards:
                self._stop_watching()

    def close(self) -> None:
        """Ends the streams of all boards."""
        self._closed = True
        self._stop_watching()
        self._newest.put(b": the server stops\n\n")

    def _stop_watching(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._newest.clear()

    async def _keep_watching(self) -> None:
        backoff = Backoff()
        while True:
            reason = "the scheduler ended the board"
            try:
                async for board in watch_board(self._scheduler()):
                    backoff.reset()
                    self._newest.put(to_event(board))
            except SignalboxError as error:
                reason = error.message
            except Exception:
                log.exception("the board failed")
                reason = "the board failed"
            self._newest.put(b"event: away\ndata: " + orjson.dumps({"message": reason}) + b"\n\n")
            await asyncio.sleep(backoff.next_s())


def to_event(board: Board) -> bytes:
    """One event. JSON has no newlines here, so one line of data is enough; bytes become base64."""
    return b"data: " + orjson.dumps(board, default=_text_of) + b"\n\n"


def _text_of(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} is not for JSON")
    return base64.b64encode(value).decode()
