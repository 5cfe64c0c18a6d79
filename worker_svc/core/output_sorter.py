"""Sorts what a step made by the frontends that wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from signalbox.protocol.enums import FinishReason
from worker_svc.core.acceptance import NewTokens
from worker_svc.core.batch import Sampled, TokenLogprobs
from worker_svc.core.requests.prompt_reading import PromptResults
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import I32, Failure, FrontendOutput

V = TypeVar("V")
NOBODY = -1


@dataclass
class _Frontend:
    """One that has requests here."""

    instance: str
    num_requests: int = 0


class OutputSorter:
    """Knows whose request each slot holds, and no frontend without one."""

    def __init__(self, table: RequestTable) -> None:
        self._table = table
        self._numbers: dict[str, int] = {}
        self._frontends: dict[int, _Frontend] = {}
        self._next_number = 0
        self._frontend_of = np.full(table.num_slots, NOBODY, np.int64)

    @property
    def num_frontends(self) -> int:
        """Frontends with a request here."""
        return len(self._frontends)

    def add(self, slot: int, frontend_instance: str) -> None:
        """A request of this frontend moved into `slot`, which was free."""
        number = self._numbers.get(frontend_instance)
        if number is None:
            number = self._numbers[frontend_instance] = self._next_number
            self._frontends[number] = _Frontend(frontend_instance)
            self._next_number += 1
        self._frontends[number].num_requests += 1
        self._frontend_of[slot] = number

    def remove(self, slot: int) -> None:
        """The request in `slot` is gone, if there was one."""
        number = int(self._frontend_of[slot])
        if number == NOBODY:
            return
        self._frontend_of[slot] = NOBODY
        frontend = self._frontends[number]
        frontend.num_requests -= 1
        if not frontend.num_requests:
            del self._frontends[number], self._numbers[frontend.instance]

    def outputs(
        self, new: NewTokens, ended: list[int], sampled: Sampled, prompts: PromptResults
    ) -> list[FrontendOutput]:
        """What each frontend concerned is told; `ended` are slots."""
        owners = self._frontend_of[new.slots]
        logprobs = logprobs_by_slot(new, sampled)
        others = self._frontend_of[[*ended, *prompts.logprobs]] if ended or prompts.logprobs else ()
        found = self._found(new, prompts)
        legs = self._legs(new.slots) | self._legs([*ended, *prompts.logprobs])
        concerned = {*owners.tolist(), *map(int, others)}
        outputs = []
        for number in sorted(concerned):
            mine = owners == number
            counts = new.counts[mine]
            outputs.append(
                FrontendOutput(
                    frontend_instance=self._frontends[number].instance,
                    attempts=self._table.attempts[new.slots[mine]],
                    starts=new.starts[mine].astype(np.uint32),
                    counts=None if (counts == 1).all() else counts.astype(np.uint8),
                    token_ids=new.token_ids[np.repeat(mine, new.counts)],
                    finished=[self._finished(slot) for slot in ended if self._frontend_of[slot] == number],
                    logprobs=self._of_frontend(logprobs, number),
                    prompt_logprobs=[
                        (attempt, *values) for attempt, values in self._of_frontend(prompts.logprobs, number)
                    ],
                    vectors=self._of_frontend(prompts.vectors, number),
                    legs=dict(self._of_frontend(legs, number)),
                    found=self._of_frontend(found, number),
                )
            )
        return outputs

    def ending(self, slot: int) -> FrontendOutput:
        """Tells of the end of the request in `slot` alone."""
        ref = self._table.refs[slot]
        assert ref is not None
        none = np.empty(0, np.uint32)
        return FrontendOutput(
            frontend_instance=ref.frontend_instance,
            attempts=none,
            starts=none,
            counts=None,
            token_ids=none.astype(np.int32),
            finished=[self._finished(slot)],
            legs=dict(zip([ref.attempt], self._legs([slot]).values(), strict=False)),
        )

    def _found(self, new: NewTokens, prompts: PromptResults) -> dict[int, int]:
        """Prompt tokens that were found computed, by slot, of the slots of which nothing has been said yet."""
        first = [*new.slots[new.starts == 0].tolist(), *prompts.vectors]
        return {slot: int(self._table.num_found[slot]) for slot in first if self._table.num_found[slot]}

    def _legs(self, slots: list[int] | I32) -> dict[int, int]:
        """The legs that are not 0, by slot."""
        named = np.asarray(slots, np.int64)
        return {slot: int(self._table.legs[slot]) for slot in named[self._table.legs[named] > 0].tolist()}

    def _of_frontend(self, by_slot: dict[int, V], number: int) -> list[tuple[int, V]]:
        """(attempt, value) of the slots that hold requests of this frontend."""
        return [
            (int(self._table.attempts[slot]), value)
            for slot, value in by_slot.items()
            if self._frontend_of[slot] == number
        ]

    def _finished(self, slot: int) -> tuple[int, FinishReason, int, Failure | None]:
        table = self._table
        reason = FinishReason(int(table.finish_reasons[slot]))
        return int(table.attempts[slot]), reason, table.num_output(slot), table.failures[slot]


def logprobs_by_slot(new: NewTokens, sampled: Sampled) -> dict[int, list[TokenLogprobs]]:
    """Log-probabilities of the tokens that count, of the slots that asked for them."""
    if not sampled.logprobs:
        return {}
    return {
        slot: [sampled.logprobs[first + j] for j in range(count)]
        for slot, first, count in zip(
            new.slots.tolist(), new.first.tolist(), new.counts.tolist(), strict=True
        )
        if first in sampled.logprobs
    }
