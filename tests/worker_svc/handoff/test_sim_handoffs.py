"""Requests of the simulated model go from worker to worker, and nothing shows in what comes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.grammar.form import Form, FormError
from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind, ReadFault
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.protocol.parts.handoff import HandoffOrders
from signalbox.v1 import generation_pb2
from tests.worker_svc.handoff.ends import Asked, End, hand_over
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.grammar.preparation import GrammarPreparation
from worker_svc.runner.sim.model import SimDrafter, SimRunner, continuation
from worker_svc.transfer.channels.names import ALL, TCP

INFO = RunnerInfo("sim", num_blocks=64, block_size=4, max_model_len=128, vocab_size=100, eos_token_ids=())
WINDOW = BlockGroup(BlockGroupKind.WINDOW, 10, 64)
PROMPT = list(range(5, 27))
BLOCKS = list(range(32))
COUNT = 80
"""Output tokens."""


def asked(max_tokens: int = 40, drafts: int = 0, **sampling: Any) -> Asked:
    payload = generation_pb2.RequestPayload(sampling=generation_pb2.SamplingParams(**sampling))
    root = root_hash("sim")
    chain = chain_hashes(root, np.array(PROMPT, "<i4").tobytes(), 4)[-16:] or root
    return Asked(PROMPT, payload, max_tokens, chain, drafts)


def run(
    test: Callable[[End, End], Coroutine[Any, Any, None]], info: RunnerInfo, acceptance: float = 0.0
) -> None:
    """Runs a test with two workers."""

    async def both() -> None:
        def drafter() -> SimDrafter | None:
            return SimDrafter(info.vocab_size, acceptance) if info.max_draft_tokens else None

        async with End("a", SimRunner(info), drafter()) as a, End("b", SimRunner(info), drafter()) as b:
            await test(a, b)

    asyncio.run(both())


KINDS = {
    "plain": (INFO, 0.0),
    "windows": (replace(INFO, groups=(WINDOW,)), 0.0),
    "states": (replace(INFO, num_state_versions=3), 0.0),
    "drafts": (replace(INFO, max_draft_tokens=3), 0.7),
    "all": (replace(INFO, groups=(WINDOW,), num_state_versions=4, max_draft_tokens=3), 0.7),
}


def test_a_request_is_taken_over_under_the_leg_that_its_commit_says() -> None:
    """HO9, HO11: what is said once more, too, is of that leg."""

    async def test(a: End, b: End) -> None:
        a.add(asked().message(0))
        a.start(0, BLOCKS, len(PROMPT))
        b.add(asked().coming(1, 1, 1, a))
        b.give(1, BLOCKS)
        a.export(0, 1, b)
        await b.until("import_ready")
        a.step(HandoffOrders(frozen_slots=[0]))
        await b.until("import_ended")
        table = b.core.table
        begin, end = int(table.num_computed[1]), int(table.num_tokens[1])
        orders = HandoffOrders(committed_slots=[1], committed_legs=[258])
        b.step(orders, chunks=[(1, begin, end - begin)])
        seen = dict[int, int]()
        while not b.tell(seen):
            b.step()
        legs = {leg for batch in b.batches() for leg in np.frombuffer(batch.legs, "<u4").tolist()}
        assert legs == {258} and sorted(seen) == list(range(40))

    run(test, INFO)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_goes_back_and_forth_and_its_tokens_are_those_of_one_that_stayed(kind: str) -> None:
    """HO5, HO6, HO11, HO12: handed over behind each step, with everything that the frontend has not read."""
    info, acceptance = KINDS[kind]

    async def test(a: End, b: End) -> None:
        request = asked(COUNT, info.max_draft_tokens)
        a.add(request.message(0))
        a.start(0, BLOCKS, 9)
        a.step(chunks=[(0, 9, 6)])  # handed over in the middle of its prompt
        ends, slots, leg, seen = [a, b], [0, 1], 0, dict[int, int]()
        has_ended = False
        while not has_ended:
            leg += 1
            here, there = ends
            if not await hand_over(request, (here, slots[0]), (there, slots[1]), leg, leg, BLOCKS):
                assert here.tell(seen)
                break
            here.read()
            has_ended = there.tell(seen)
            legs = {leg for batch in there.batches() for leg in np.frombuffer(batch.legs, "<u4").tolist()}
            assert legs <= {leg}, "what is repeated is said with the leg of who repeats it"
            if not has_ended and leg % 2:
                there.step()
                has_ended = there.tell(seen)
            there.read(leg % 3)  # the rest travels on
            ends, slots = [there, here], [slots[1], slots[0]]
        assert leg > 4
        names = [name for end in (a, b) for sealed in end.core.table.sealed for name in sealed]
        tokens = np.array(PROMPT + continuation(PROMPT, COUNT, 100), "<i4").tobytes()
        chain = chain_hashes(root_hash("sim"), tokens, 4)
        first, last = len(PROMPT) // 4, (len(PROMPT) + COUNT - 1) // 4
        assert b"".join(names) == chain[16 * first : 16 * last], "blocks are named as of one that stayed"
        assert [seen[number] for number in range(COUNT)] == continuation(PROMPT, COUNT, 100)

    run(test, info, acceptance)


class Note:
    """An automaton that allows anything, and notes what it takes."""

    is_complete = False
    work_us = 0

    def __init__(self) -> None:
        self.taken: list[int] = []

    def advance(self, token: int) -> None:
        """See `Automaton`."""
        self.taken.append(token)

    def legal_drafts(self, drafts: Any) -> int:
        """See `Automaton`."""
        return len(drafts)

    def fill(self, drafts: Any, masks: Any) -> None:
        """See `Automaton`."""
        masks[:] = 0xFFFFFFFF


class Notes:
    """Compiles any form."""

    def __init__(self) -> None:
        self.made: list[Note] = []

    def automaton(self, form: Form) -> Note:
        """See `Compiler`."""
        self.made.append(Note())
        return self.made[-1]

    def close(self) -> None:
        """See `Compiler`."""


def with_form(regex: str) -> Asked:
    return asked(20, structured_output=generation_pb2.StructuredOutput(regex=regex))


async def with_forms(test: Callable[[End, End, Notes], Coroutine[Any, Any, None]]) -> None:
    """Runs a test with two workers that follow forms; the notes are the second's."""
    notes = Notes()
    here, there = GrammarPreparation(Notes()), GrammarPreparation(notes)
    async with (
        End("a", SimRunner(INFO), preparation=here) as a,
        End("b", SimRunner(INFO), preparation=there) as b,
    ):
        await test(a, b, notes)
    here.close()
    there.close()


def test_the_automaton_stands_behind_all_output() -> None:
    """G5, HO12: compiled at the head, moved over what came since behind the tail."""

    async def test(a: End, b: End, notes: Notes) -> None:
        request = with_form("x")
        a.add(request.message(0))
        await a.grammar()
        a.start(0, BLOCKS, len(PROMPT))
        a.step()
        assert await hand_over(request, (a, 0), (b, 1), 1, 1, BLOCKS)
        seen = dict[int, int]()
        while not b.tell(seen):
            b.step()
        assert notes.made[-1].taken == continuation(PROMPT, 20, 100) == [seen[n] for n in range(20)]

    asyncio.run(with_forms(test))


def test_a_frozen_request_whose_form_is_ready_is_named_to_a_new_scheduler() -> None:
    """HO9: it may go on where it is, and nobody else would say so."""

    async def test(a: End, b: End, notes: Notes) -> None:
        request = with_form("x")
        a.add(request.message(0))
        await a.grammar()
        assert a.core.ready_slots() == [0]
        b.add(request.coming(1, 1, 1, a))
        a.export(0, 1, b)
        a.step(HandoffOrders(frozen_slots=[0]))
        assert (a.core.table.status[0], a.core.ready_slots()) == (SlotStatus.FROZEN, [0])

    asyncio.run(with_forms(test))


def test_a_form_that_the_target_cannot_compile_ends_the_hand_off_alone() -> None:
    """HO8."""

    async def test(a: End, b: End, notes: Notes) -> None:
        request = with_form("x")
        a.add(request.message(0))
        await a.grammar()
        a.start(0, BLOCKS, len(PROMPT))
        notes.automaton = refuse  # type: ignore[method-assign]
        b.add(request.coming(1, 1, 1, a))
        b.give(1, BLOCKS)
        a.export(0, 1, b)
        ended = await b.until("import_ended")
        assert "is bad" in ended.error.message and ended.fault == ReadFault.REQUEST
        a.step(HandoffOrders(kept_slots=[0]))
        b.step(finished_slots=[1])
        assert b.core.held_slots() == []
        seen = dict[int, int]()
        while not a.tell(seen):
            a.step()
        assert [seen[n] for n in range(20)] == continuation(PROMPT, 20, 100)

    def refuse(form: Form) -> Note:
        raise FormError("is bad")

    asyncio.run(with_forms(test))


@pytest.mark.parametrize(("channel", "names"), [("127.0.0.1:0", ALL), ("", ALL), ("127.0.0.1:0", (TCP,))])
def test_blocks_come_by_a_channel_that_the_source_offers(channel: str, names: tuple[str, ...]) -> None:
    """TR2"""

    async def test() -> None:
        async with (
            End("a", SimRunner(INFO, shared=True), channels=channel, names=names) as a,
            End("b", SimRunner(INFO, shared=True), channels=channel, names=names) as b,
        ):
            request, seen = asked(), dict[int, int]()
            a.add(request.message(0))
            a.start(0, BLOCKS, len(PROMPT))
            read = a.transfers._mover.read
            a.transfers._mover.read = None  # type: ignore[method-assign,assignment]
            assert await hand_over(request, (a, 0), (b, 1), 1, 1, BLOCKS[::-1])
            assert await hand_over(request, (b, 1), (a, 2), 2, 2, BLOCKS)
            assert read is not None, "no message had content"
            while not a.tell(seen):
                a.step()
            assert [seen[n] for n in range(40)] == continuation(PROMPT, 40, 100)

    asyncio.run(test())
