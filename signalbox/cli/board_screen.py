"""Shows the board of a scheduler in this terminal."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from rich.console import Console, RenderableType
from rich.live import Live

from signalbox.board.link import watch_board
from signalbox.board.rates import Rates
from signalbox.cli.board_view import render
from signalbox.errors import InvalidRequestError, UnavailableError

NUM_LOOKS_ONCE = 3
"""Snapshots before one is printed: rates need some."""


async def print_once(scheduler: str) -> None:
    """One look, after about a second."""
    number = 0
    async with aclosing(_views(scheduler)) as views:
        async for view in views:
            number += 1
            if number == NUM_LOOKS_ONCE:
                Console().print(view)
                return
    raise UnavailableError(f"the scheduler at {scheduler} ended the board")


async def show(scheduler: str) -> None:
    """Fills the screen until cancelled. Raises UnavailableError when the scheduler goes, and InvalidRequestError when
    there is no screen to fill."""
    console = Console()
    if not console.is_terminal:
        raise InvalidRequestError("the output is no terminal; `signalbox top --once` prints one look")
    with Live(console=console, screen=True, auto_refresh=False) as live:
        async with aclosing(_views(scheduler)) as views:
            async for view in views:
                live.update(view, refresh=True)
    raise UnavailableError(f"the scheduler at {scheduler} ended the board")


async def _views(scheduler: str) -> AsyncGenerator[RenderableType, None]:
    rates = Rates()
    async with aclosing(watch_board(scheduler)) as boards:
        async for board in boards:
            rates.add(board)
            yield render(board, rates, scheduler)
