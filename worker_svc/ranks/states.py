"""Recurrent states whose layers are at several stages, as bytes of one: those of the first stage, then of the next
(RK17)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from signalbox.v1 import ranks_pb2
from worker_svc.ranks.blocks import cut
from worker_svc.ranks.leader import Leader
from worker_svc.runner.recurrent.state_bytes import state_sizes
from worker_svc.runner.recurrent.store import StateStore
from worker_svc.transfer.errors import TransferError


class GroupStates:
    """Reads and writes states of all stages, in turn between steps. Each rank of a stage has all of the stage's."""

    def __init__(self, leader: Leader, own: StateStore | None, stage_size: int) -> None:
        """stage_size: ranks of each stage."""
        self._leader, self._stage_size = leader, stage_size
        self._most_drafts = 0 if own is None else own.num_drafts
        call = ranks_pb2.RankCall(state_sizes=True)
        said = leader.gather(call, lambda: sizes_of(own))
        self._sizes = [np.frombuffer(sizes, "<u8").tolist() for sizes in said[::stage_size]]

    def read(self, slot: int, version: int, num_drafts: int, own: Callable[[], bytes]) -> bytes:
        """The state in a version of a slot, with so many drafts behind it; `own` reads ours."""
        state = ranks_pb2.RankState(slot=slot, version=version, num_drafts=num_drafts)
        said = self._leader.gather(ranks_pb2.RankCall(read_state=state), own)
        return b"".join(said[:: self._stage_size])

    def write(
        self, slot: int, version: int, num_drafts: int, content: bytes, own: Callable[[bytes], None]
    ) -> None:
        """Puts what `read` gave elsewhere into a version of a slot; `own` writes ours. TransferError if it has another
        size; nothing is written then."""
        if num_drafts > self._most_drafts:
            raise TransferError(f"a state has no {num_drafts} drafts behind it here")
        parts = cut(content, [state + num_drafts * draft for state, draft in self._sizes], "states")
        calls = [
            ranks_pb2.RankCall(
                write_state=ranks_pb2.RankState(
                    slot=slot, version=version, num_drafts=num_drafts, content=part
                )
            )
            for part in parts
            for _ in range(self._stage_size)
        ]
        self._leader.run_apart(calls[1:], lambda: own(parts[0]))


def sizes_of(store: StateStore | None) -> bytes:
    """Bytes of a state, and of each draft behind it, as a column."""
    return np.array(state_sizes(store), "<u8").tobytes()
