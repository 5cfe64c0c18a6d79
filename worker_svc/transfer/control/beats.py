"""Heartbeats on the control stream of a hand-off or pull: both ends notice one that has gone silent (docs/design.md,
HO19)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from signalbox.links.heartbeat import HEARTBEAT_S, Silence
from signalbox.v1 import transfer_pb2
from worker_svc.transfer.errors import TransferError

SILENCE_S = 1.5
"""From when on the other end counts as silent."""
FIRST_S = 5.0
"""How long a source may take until its first word: it has to be reached."""


class Hearing:
    """When the other end has last said something. It is judged from `expect` on."""

    def __init__(self) -> None:
        self._beats = False
        """The other end says something at least every HEARTBEAT_S."""
        self._silence: Silence | None = None

    def expect(self, limit_s: float) -> None:
        """Something is to be heard within `limit_s` from now on."""
        self._silence = Silence(limit_s, _now())

    def expect_beats(self) -> None:
        """The other end is known to beat."""
        self._beats = True
        self.expect(SILENCE_S)

    def heard(self, *, is_beat: bool = False) -> None:
        """The other end has said something. `is_beat`: a heartbeat, which nobody sends who does not go on with them;
        of an end that says anything else first it is not known, and nothing is expected."""
        if is_beat and not self._beats:
            self.expect_beats()
        elif not self._beats:
            self._silence = None
        elif self._silence is not None:
            self._silence.heard(_now())

    def check(self) -> None:
        """Raises TransferError when the other end is silent. Call it every HEARTBEAT_S."""
        if self._silence is not None and self._silence.is_silent(_now()):
            raise TransferError(f"nothing was heard for {self._silence.lasts_s(_now()):.1f} s")


def _now() -> float:
    return asyncio.get_running_loop().time()


async def with_beats(
    responses: AsyncGenerator[transfer_pb2.PullResponse, None], hearing: Hearing
) -> AsyncGenerator[transfer_pb2.PullResponse, None]:
    """`responses`, and heartbeats at the beginning and wherever the next one takes longer than HEARTBEAT_S. Raises
    TransferError when the target is silent, and what `responses` raises."""
    coming: asyncio.Task[Any] | None = None
    try:
        yield transfer_pb2.PullResponse()
        while True:
            coming = coming or asyncio.create_task(_next(responses))
            await asyncio.wait((coming,), timeout=HEARTBEAT_S)
            if not coming.done():
                hearing.check()
                yield transfer_pb2.PullResponse()
                continue
            response, coming = coming.result(), None
            if response is None:
                return
            yield response
    finally:
        if coming is not None:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await coming
        await responses.aclose()


async def _next(
    responses: AsyncGenerator[transfer_pb2.PullResponse, None],
) -> transfer_pb2.PullResponse | None:
    return await anext(responses, None)
