"""Workers that compete with one for requests of a kind, sorted by load."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from scheduler_svc.core.placement.standings import NO_ROOM, Mask, Standings
from scheduler_svc.core.state.worker import Worker


class Rivals:
    """A view of standings that do not change while one step is made. A question is a bisection."""

    def __init__(self, standings: Standings, chosen: Mask) -> None:
        """`chosen`: `[workers]`, who competes."""
        self._standings, self._chosen = standings, chosen
        indexes = np.flatnonzero(chosen)
        self._by_load = indexes[np.argsort(standings.load[indexes], kind="stable")]
        self._loads: list[int] = standings.load[self._by_load].tolist()
        self._most: dict[tuple[bool, bool], list[int]] = {}
        """By (open ones only, with a grammar): for each place in the order of load, who has most room up to there."""
        self._computing: Rivals | None = None

    def __len__(self) -> int:
        return len(self._loads)

    @property
    def members(self) -> list[Worker]:
        """Rivals in the order of the scheduler's mapping."""
        workers = self._standings.workers
        return [workers[index] for index in np.flatnonzero(self._chosen).tolist()]

    @property
    def computing(self) -> Rivals:
        """Rivals whose role is not `decode`."""
        if self._computing is None:
            decodes = self._standings.decodes
            has_some = bool((self._chosen & decodes).any())
            self._computing = Rivals(self._standings, self._chosen & ~decodes) if has_some else self
        return self._computing

    def named(self, worker_id: str | None) -> Worker | None:
        """The rival of that name; None: there is none."""
        index = self._standings.index_of.get(worker_id) if worker_id is not None else None
        return self._standings.workers[index] if index is not None and self._chosen[index] else None

    def most_room(
        self, most_load: int | None, *, is_open: bool, has_grammar: bool
    ) -> tuple[int, Worker | None]:
        """Known tokens of the longest request that one of those with `most_load` or less (None: all) could start, and
        who could; NO_ROOM and None: there is none. `is_open`: only workers that may get a step now count;
        `has_grammar`: only those that may prepare one."""
        place = len(self._loads) if most_load is None else bisect_right(self._loads, most_load)
        if not place:
            return NO_ROOM, None
        key = (is_open, has_grammar)
        most = self._most.get(key)
        if most is None:
            most = self._most[key] = self._most_room(*key)
        above, where = divmod(most[place - 1], len(self._loads))
        if not above:
            return NO_ROOM, None
        return above + NO_ROOM, self._standings.workers[int(self._by_load[where])]

    def _most_room(self, is_open: bool, has_grammar: bool) -> list[int]:
        """Room above NO_ROOM, and the place of who has it, as one number that rises with the room."""
        standings, indexes = self._standings, self._by_load
        room = standings.room[indexes]
        if is_open:
            room = np.where(standings.is_open[indexes], room, NO_ROOM)
        if has_grammar:
            room = np.where(standings.may_prepare[indexes], room, NO_ROOM)
        numbers = (room - NO_ROOM) * len(indexes) + np.arange(len(indexes))
        most: list[int] = np.maximum.accumulate(numbers).tolist()
        return most
