"""Hand-offs that fail, and what they leave behind: nothing, but a request that goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.handoff import ExportOrder, HandoffOrders
from signalbox.protocol.parts.import_start import ImportStart
from signalbox.protocol.parts.names import WorkerName
from tests.worker_svc.handoff.ends import KEY, End
from tests.worker_svc.handoff.test_sim_handoffs import BLOCKS, INFO, PROMPT, WINDOW, asked
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.step import SlotStart
from worker_svc.links.delta import build_snapshot
from worker_svc.runner.sim.model import SimRunner, continuation
from worker_svc.steps.items import LinkClosed, LinkMark
from worker_svc.transfer.control import source
from worker_svc.transfer.control.gate import Gate
from worker_svc.transfer.control.news import ExportOver, ImportGranted, News
from worker_svc.transfer.errors import TransferError

EXPECTED = continuation(PROMPT, 40, 100)
FROZEN, PREFILL, DECODE = SlotStatus.FROZEN, SlotStatus.PREFILL, SlotStatus.DECODE


def run(test: Callable[[End, End], Coroutine[Any, Any, None]], info: Any = INFO) -> None:
    async def both() -> None:
        async with End("a", SimRunner(info)) as a, End("b", SimRunner(info)) as b:
            await test(a, b)

    asyncio.run(both())


def begun(a: End, b: End, leg: int = 1) -> None:
    """A request decodes at `a`, in slot 0, and is on its way to slot 1 of `b`."""
    a.add(asked().message(0))
    a.start(0, BLOCKS, len(PROMPT))
    coming(a, b, leg)


def coming(a: End, b: End, transfer: int) -> None:
    b.add(asked().coming(1, transfer, transfer, a))
    b.give(1, BLOCKS)
    a.export(0, transfer, b)


async def imported(a: End, b: End) -> None:
    """It is frozen there, and all of it is here."""
    await b.until("import_ready")
    a.step(HandoffOrders(frozen_slots=[0]))
    assert not (await b.until("import_ended")).HasField("error")


def goes_on(end: End) -> None:
    """To its end, as if nothing had been."""
    seen = dict[int, int]()
    while not end.tell(seen):
        end.step()
    assert [seen[number] for number in range(40)] == EXPECTED


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_frozen_slot_goes_on_as_it_was_under_another_leg(is_paused: bool) -> None:
    """HO4, HO8: it is no row while it is frozen, and is not changed by a pause."""

    async def test(a: End, b: End) -> None:
        begun(a, b)
        if is_paused:
            a.step(paused_slots=[0])
        await imported(a, b)
        count = int(a.core.table.num_tokens[0])
        assert a.step(unpaused_slots=[0]).num_decode_rows == 0
        assert (a.core.table.status[0], a.core.table.num_tokens[0]) == (FROZEN, count)
        b.step(finished_slots=[1])
        assert b.core.held_slots() == [] and not b.core.table.holders.any()
        report = a.step(HandoffOrders(thawed=[(0, 2)]))
        assert report.num_decode_rows == (not is_paused)
        a.step(unpaused_slots=[0])
        goes_on(a)
        legs = {leg for batch in a.batches() for leg in np.frombuffer(batch.legs, "<u4").tolist()}
        assert legs == {2} and a.batches()[-1].finished[0].leg == 2

    run(test)


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_slot_that_had_ended_when_it_is_frozen_is_no_row_until_it_goes_on(
    is_paused: bool, is_read: bool
) -> None:
    """HO4, HO5, M5: the scheduler does not know yet, and both count the rows of its steps."""

    async def test(a: End, b: End) -> None:
        a.add(asked(3).message(0))
        a.start(0, BLOCKS, len(PROMPT))
        if is_read:
            b.add(asked(3).coming(1, 1, 1, a))
            b.give(1, BLOCKS)
            a.export(0, 1, b)
        while a.core.table.status[0] != SlotStatus.ENDED:
            a.step()
        assert a.step(paused_slots=[0] if is_paused else []).num_decode_rows == (not is_paused)
        assert a.step(HandoffOrders(frozen_slots=[0])).num_decode_rows == 0
        assert a.step().num_decode_rows == 0
        assert a.step(HandoffOrders(thawed=[(0, 2)])).num_decode_rows == (not is_paused)
        assert a.step(finished_slots=[0]).num_decode_rows == 0
        assert a.core.held_slots() == []

    run(test)


def test_a_frozen_slot_without_blocks_starts_with_the_step_that_thaws_it() -> None:
    """HO8, K3: a scheduler has it go on ahead of all that starts."""

    async def test(a: End, b: End) -> None:
        a.add(asked().message(0))
        a.start(0, BLOCKS, len(PROMPT))
        for _ in range(5):
            a.step()
        a.step(preempted_slots=[0])
        b.add(asked().coming(1, 1, 1, a))
        b.give(1, [])
        a.export(0, 1, b)
        await imported(a, b)
        length = int(a.core.table.num_tokens[0])
        resumed = [SlotStart(0, np.array(BLOCKS, np.int32), 0, length, a.groups(BLOCKS))]
        before = a.core.last_step_id
        a.try_step(HandoffOrders(), resumed=resumed)
        assert len(a.refusals) == 1 and a.core.last_step_id == before, "it is still frozen"
        a.refusals.clear()
        a.link = LinkMark()
        assert a.step(HandoffOrders(thawed=[(0, 2)]), resumed=resumed).num_prefill_tokens == length
        goes_on(a)

    run(test)


def test_a_slot_that_is_kept_runs_on_and_can_be_handed_over_again() -> None:
    """HO8."""

    async def test(a: End, b: End) -> None:
        begun(a, b)
        await b.until("import_ready")
        a.step(HandoffOrders(kept_slots=[0]))
        ended = await b.until("import_ended")
        assert ended.transfer == 1 and ended.HasField("error") and ended.fault == ReadFault.WITHDRAWN
        b.step(finished_slots=[1])
        coming(a, b, 2)
        await imported(a, b)
        b.commit(1)
        goes_on(b)

    run(test)


@pytest.mark.parametrize(("key", "name"), [(b"another", "b"), (KEY, "c")])
def test_nobody_else_reads_a_request(key: bytes, name: str) -> None:
    """HO2."""

    async def test(a: End, b: End) -> None:
        a.add(asked().message(0))
        a.start(0, BLOCKS, len(PROMPT))
        b.add(asked().coming(1, 1, 1, a))
        b.give(1, BLOCKS)
        target = WorkerName(name, b.name.instance)
        a.step(HandoffOrders(exports=[ExportOrder(0, 1, target, key)]))
        ended = await b.until("import_ended")
        assert "another" in ended.error.message and ended.fault == ReadFault.PAIR

    run(test)


def test_a_tail_that_is_too_large_says_that_the_request_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """HO21: other requests go from this source to this target."""
    monkeypatch.setattr(source, "MOST_TAIL_BYTES", 10)

    async def test(a: End, b: End) -> None:
        begun(a, b)
        await b.until("import_ready")
        a.step(HandoffOrders(frozen_slots=[0]))
        ended = await b.until("import_ended")
        assert "is unread" in ended.error.message and ended.fault == ReadFault.REQUEST

    run(test)


def test_a_target_that_is_ahead_of_its_source_waits() -> None:
    """HO3."""

    async def test(a: End, b: End) -> None:
        a.add(asked().message(0))
        a.start(0, BLOCKS, len(PROMPT))
        b.add(asked().coming(1, 1, 1, a))
        b.give(1, BLOCKS)
        while not a.transfers.source._waiting:
            await asyncio.sleep(0.001)
        a.export(0, 1, b)
        await imported(a, b)

    run(test)


def test_a_source_that_is_gone_ends_the_hand_off() -> None:
    """HO8."""

    async def test(a: End, b: End) -> None:
        begun(a, b)
        await b.until("import_ready")
        await a._server.stop(0)
        ended = await b.until("import_ended")
        assert ended.error.message and ended.fault == ReadFault.PAIR
        b.step(finished_slots=[1])
        assert b.core.held_slots() == []

    run(test)


def test_a_link_that_ends_drops_what_nobody_else_knows() -> None:
    """HO9: what is frozen, or ended, is kept, and the snapshot tells of it; no row of it runs alone (HO7)."""

    async def test(a: End, b: End) -> None:
        begun(a, b)
        b.add(asked().coming(3, 1, 9, a))
        await imported(a, b)
        a.add(replace(asked(), prompt=PROMPT[:9]).message(2))
        a.start(2, [40, 41, 42, 43], 9)
        a.export(2, 5, b)
        for end in (a, b):
            end.core.greet(1, "s")
            end.engine._was_greeted = True
            end._take(LinkClosed())
        assert a.core.handoffs.exports.by_slot.keys() == {0} and b.core.handoffs.imports.by_slot.keys() == {1}
        frozen, imported_slot = build_snapshot(a.core).slots[0], build_snapshot(b.core).slots[0]
        assert (frozen.status, frozen.frozen_status, frozen.leg) == (FROZEN, DECODE, 0)
        assert (imported_slot.status, imported_slot.leg) == (SlotStatus.IMPORTED, 1)
        assert frozen.transfer.other.worker_id == "b" and imported_slot.transfer.other.worker_id == "a"
        assert frozen.transfer.transfer == imported_slot.transfer.transfer == 1
        assert len(build_snapshot(b.core).slots) == 1 and imported_slot.block_ids
        for name in ("num_computed_tokens", "num_output_tokens", "sealed_hashes", "scheduler_meta"):
            assert getattr(frozen, name) == getattr(imported_slot, name), name
        assert b.engine.author() is None, "an imported row does not run"
        own = a.engine.author()
        assert own is not None and a.core.author(100) is not None
        a._take(own)
        assert a.results[-1].report.num_decode_rows == 1, "the frozen row does not run, the other one does"

    run(test)


def test_blocks_are_written_when_the_step_that_grants_them_has_run() -> None:
    """K2, HO3."""

    async def test(a: End, b: End) -> None:
        b.add(asked().coming(1, 1, 1, a))
        orders = HandoffOrders(
            import_starts=[ImportStart(1, BLOCKS, 0, tuple((0, BLOCKS) for _ in b.runner.info.groups))]
        )
        taken: list[bool] = []
        finish = b.engine.finish

        def finished() -> None:
            taken.append(any(isinstance(news, ImportGranted) for news in b.news))
            finish()

        b.engine.finish = finished  # type: ignore[method-assign]
        b.step(orders)
        assert taken == [False] and any(isinstance(news, ImportGranted) for news in b.news)

    run(test)


def test_the_end_of_a_request_is_reported_before_its_target_hears_of_it() -> None:
    """HO21: else the failure that the target reports would count against the pair."""

    async def test(a: End, b: End) -> None:
        a.add(asked(3).message(0))
        a.start(0, BLOCKS, len(PROMPT))
        b.add(asked(3).coming(1, 1, 1, a))
        b.give(1, BLOCKS)
        a.export(0, 1, b)
        was_reported, take = list[bool](), a.transfers.take

        def noted(news: News) -> None:
            if isinstance(news, ExportOver):
                was_reported.append(any(output.finished for output in a.results[-1].outputs))
            take(news)

        a.transfers.take = noted  # type: ignore[method-assign]
        await b.until("import_ready")
        while a.core.table.status[0] != SlotStatus.ENDED:
            a.step()
        assert was_reported == [True]
        ended = await b.until("import_ended")
        assert "ended" in ended.error.message and ended.fault == ReadFault.WITHDRAWN

    run(test)


def test_a_gate_waits_for_the_piece_under_way_and_lets_no_other_pass() -> None:
    """HO3: so nothing of it is read or written behind."""
    gate, has_begun, may_end, order = Gate(), threading.Event(), threading.Event(), list[str]()

    def piece() -> None:
        with gate.passing():
            has_begun.set()
            may_end.wait(10)
            order.append("piece")

    reader = threading.Thread(target=piece)
    reader.start()
    has_begun.wait(10)

    def close() -> None:
        gate.close()
        order.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    may_end.set()
    reader.join(10)
    closer.join(10)
    assert order == ["piece", "closed"]
    with pytest.raises(TransferError), gate.passing():
        pass
    gate.on_close(lambda: order.append("late"))
    assert order[-1] == "late"


@pytest.mark.parametrize("how", ["kept_slots", "finished_slots", "preempted_slots", "thawed"])
def test_what_is_no_more_handed_over_is_neither_read_nor_written(how: str) -> None:
    """HO3, HO8, K2: ahead of the step that may give its blocks away."""

    async def test(a: End, b: End) -> None:
        begun(a, b)
        await b.until("import_ready")
        gates = [a.engine._handoffs._going[0].gate, b.engine._handoffs._coming[1].gate]
        if how == "thawed":
            a.step(HandoffOrders(frozen_slots=[0]))
            a.step(HandoffOrders(thawed=[(0, 2)]))
        elif how == "kept_slots":
            a.step(HandoffOrders(kept_slots=[0]))
        else:
            a.step(None, **{how: [0]})
        b.step(finished_slots=[1])
        for gate in gates:
            with pytest.raises(TransferError), gate.passing():
                pass
        assert not b.core.table.holders.any()

    run(test)


def test_what_a_window_has_passed_is_read_no_more() -> None:
    """WB1, WB3, HO3: the block may be another's by now."""

    async def test(a: End, b: End) -> None:
        a.add(asked().message(0))
        a.start(0, BLOCKS, len(PROMPT))
        a.export(0, 1, b)
        going = a.engine._handoffs._going[0]
        for _ in range(20):
            a.step()
        with going.gate.passing() as firsts:
            assert firsts[0] == 0 and firsts[1] >= (len(PROMPT) + 10) // 4

    run(test, replace(INFO, groups=(WINDOW,)))


def orders(**columns: Any) -> Any:
    return {"orders": HandoffOrders(**columns)}


def start(slot: int, blocks: list[int], num_found: int = 0, groups: Any = ()) -> list[ImportStart]:
    return [ImportStart(slot, blocks, num_found, groups)]


def export(slot: int) -> list[ExportOrder]:
    return [ExportOrder(slot, 7, WorkerName("c", "c"), KEY)]


MISFITS: dict[str, Any] = {
    "a slot that is none": orders(frozen_slots=[9]),
    "a block that is none": orders(import_starts=start(2, [64])),
    "a block twice": orders(import_starts=start(2, [50, 50])),
    "another's block": orders(import_starts=start(2, [0])),
    "more found than there are": orders(import_starts=start(2, [50], 2)),
    "a table too many": orders(import_starts=start(2, [50], 0, ((0, [1]),))),
    "blocks for nobody": orders(import_starts=start(3, [50])),
    "blocks twice": orders(import_starts=[*start(2, [50]), *start(2, [51])]),
    "blocks once more": orders(import_starts=start(1, [50])),
    "a commit of what is not here": orders(committed_slots=[2]),
    "a commit of what was never elsewhere": orders(committed_slots=[0]),
    "frozen, and read by nobody": orders(frozen_slots=[0]),
    "gone on, and not frozen": orders(thawed=[(0, 1)]),
    "nothing handed over": orders(exports=export(3)),
    "handed over on its way": orders(exports=export(1)),
    "preempted on its way": {"preempted_slots": [1]},
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_step_that_does_not_fit_is_not_taken(name: str) -> None:
    """K10."""

    async def test(a: End, b: End) -> None:
        b.add(replace(asked(), prompt=PROMPT[:5]).message(0))
        b.start(0, [0, 1, 2], 5)
        b.add(asked().coming(1, 1, 1, a))
        b.give(1, BLOCKS[8:])
        b.add(asked().coming(2, 1, 2, a))
        before = b.core.last_step_id
        b.try_step(**MISFITS[name])
        assert len(b.refusals) == 1 and b.core.last_step_id == before
        assert b.core.table.status[0] in (PREFILL, DECODE)

    run(test)


@pytest.mark.parametrize("field", ["key", "address", "source"])
def test_a_request_from_nowhere_is_not_taken(field: str) -> None:
    """K10."""

    async def test(a: End, b: End) -> None:
        message = asked().coming(1, 1, 1, a)
        message.import_from.ClearField(field)  # type: ignore[arg-type]
        b.add(message)
        assert len(b.refusals) == 1 and b.core.held_slots() == []

    run(test)
