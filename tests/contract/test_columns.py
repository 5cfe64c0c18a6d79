"""M4, M5: what one service writes in columns the other reads as it was meant, and bytes on the wire stay what they are:
a service of an older release may be at the other end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend_svc.links.outputs import read_outputs
from scheduler_svc.core.state.blocks import copy_group as scheduler_copies
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.steps.step import Chunk, Start, StepDecision
from scheduler_svc.links.codec import delta as scheduler_delta
from signalbox.protocol import columns
from signalbox.protocol.columns import GRANTS, HOST_BIT, U8, U16, U32, U64, Columns
from signalbox.protocol.enums import FinishReason, NotRunReason
from signalbox.v1 import from_worker_pb2, to_worker_pb2, worker_pb2
from worker_svc.core.batch import BlockCopy, TokenLogprobs
from worker_svc.core.step import Failure, FrontendOutput, SlotStart, StepReport
from worker_svc.links import delta as worker_delta

MOST = {U8: 2**8 - 1, U16: 2**16 - 1, U32: 2**32 - 1, U64: 2**64 - 1}
SLOT, POSITION = st.integers(0, MOST[U16]), st.integers(0, MOST[U32])
BLOCK = st.integers(0, 2**31 - 1)
SLOTS = st.lists(SLOT, max_size=5)


def blocks(*ids: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(ids, np.int32)


def make_decision() -> StepDecision:
    """With something in every group."""
    step = StepDecision(7)
    step.started = [
        Start(blocks(1, 2, 70000), Chunk(3, 32, 40, True)),
        Start(blocks(9), Chunk(300, 0, 5, False)),
    ]
    step.resumed = [Start(blocks(5, 6), Chunk(4, 0, 33, True))]
    step.grant_slots, step.grant_blocks = np.array([1, 2, 300]), blocks(11, 12, 13)
    step.chunks = [Chunk(8, 100, 28, False), Chunk(9, 0, 1, True)]
    step.copies = [scheduler_copies.BlockCopy(1, 2 | HOST_BIT), scheduler_copies.BlockCopy(3 | HOST_BIT, 4)]
    step.fence = Fence(7, copies=[scheduler_copies.BlockCopy(6 | HOST_BIT, 5)])
    step.finished_slots, step.preempted_slots = [10, 11], [12]
    step.paused_slots, step.unpaused_slots = [13], [14, 15]
    step.draft_limits, step.is_solo, step.aside_slots = [(16, 3), (17, 0)], True, [18]
    return step


def make_report() -> StepReport:
    """With something in every group."""
    return StepReport(
        7,
        num_decode_rows=5,
        num_prefill_tokens=9,
        exceptions=[(1, 0), (300, 3)],
        decode_counts=np.array([1, 2, 0], np.uint8),
        not_run=[(2, NotRunReason.STALE), (301, NotRunReason.ERROR)],
        finished=[(4, FinishReason.LENGTH, 70000), (5, FinishReason.STOP, 2)],
        sealed_slots=[6, 302],
        sealed_indexes=[0, 65535],
        sealed_hashes=[bytes(16), bytes(range(16))],
        draft_limits=[(7, 2)],
        withdrawn_slots=[8],
        num_drafted=4,
        num_accepted=3,
    )


def make_output() -> FrontendOutput:
    """With something in every group."""
    return FrontendOutput(
        "f",
        np.array([5, 70000], np.uint32),
        np.array([0, 9], np.uint32),
        np.array([2, 1], np.uint8),
        blocks(3, 4, -1),
        finished=[
            (5, FinishReason.ERROR, 2, Failure("InternalError", "why", "x")),
            (70000, FinishReason.STOP, 10, None),
        ],
        logprobs=[(5, [TokenLogprobs(-0.5, 1, [3, 4], [-0.5, -1.0])])],
        prompt_logprobs=[(5, 1, [TokenLogprobs(-0.25, 2, [], [])])],
        vectors=[(6, np.array([0.5, -1], np.float32))],
    )


OLD_STEP = (
    "080710291a360a0403002c01120803000000010000001a10010000000200000070110100090000002208200000000000"
    "00002a08280000000500000022520a06010002002c01120c0b0000000c0000000d0000001a0408000900220864000000"
    "000000002a081c0000000100000032200a0204001204020000001a0805000000060000002204000000002a0421000000"
    "2a020c0032040a000b003a020d0042040e000f004a0410001100520203005a140a080100000003000080120802000080"
    "040000006a0e0a0406000080120405000000180770017a021200"
)
OLD_REPORT = (
    "0807120401002c011a02000322030102002a0402002d01320201023a0404000500420202014a08701101000200000052"
    "0406002e015a040000ffff622000000000000000000000000000000000000102030405060708090a0b0c0d0e0f680570"
    "097a02070082010102900104980103a201020800"
)
OLD_OUTPUT = (
    "0803120805000000701101001a080000000009000000220202012a0c0300000004000000ffffffff321f080510041802"
    "22170a0d496e7465726e616c4572726f7212037768791a0178320808f0a2041001180a3a19080512150d000000bf1001"
    "1a0203042208000000bf000080bf4a0d080510011a070d000080be1002520c080612080000003f000080bf"
)


def test_the_bytes_are_those_of_the_release_before_this_table() -> None:
    step = scheduler_delta.build_step(make_decision(), 41)
    assert step.SerializeToString(deterministic=True).hex() == OLD_STEP
    report = worker_delta.build_report(make_report())
    assert report.SerializeToString(deterministic=True).hex() == OLD_REPORT
    output = worker_delta.build_outputs(make_output(), 3)
    assert output.SerializeToString(deterministic=True).hex() == OLD_OUTPUT


def test_a_step_in_which_nothing_changes_has_no_group() -> None:
    """M7."""
    assert scheduler_delta.build_step(StepDecision(9), 41).SerializeToString() == b"\x08\x09\x10\x29"


starts = st.lists(
    st.builds(
        lambda ids, *chunk: Start(blocks(*ids), Chunk(*chunk, True)),
        st.lists(BLOCK, min_size=1, max_size=4),
        SLOT,
        POSITION,
        POSITION,
    ),
    max_size=3,
)
copies = st.lists(st.builds(scheduler_copies.BlockCopy, POSITION, POSITION, st.integers(0, 8)), max_size=3)


@st.composite
def decisions(draw: st.DrawFn) -> StepDecision:
    grants = draw(st.lists(st.tuples(SLOT, BLOCK), max_size=4))
    return StepDecision(
        draw(st.integers(1, 2**40)),
        started=draw(starts),
        resumed=draw(starts),
        grant_slots=np.array([slot for slot, _ in grants], np.int64),
        grant_blocks=blocks(*(block for _, block in grants)),
        chunks=draw(st.lists(st.builds(Chunk, SLOT, POSITION, POSITION, st.booleans()), max_size=3)),
        finished_slots=draw(SLOTS),
        preempted_slots=draw(SLOTS),
        paused_slots=draw(SLOTS),
        unpaused_slots=draw(SLOTS),
        draft_limits=draw(st.lists(st.tuples(SLOT, st.integers(0, 255)), max_size=3)),
        copies=draw(copies),
        fence=draw(st.none() | st.builds(Fence, st.integers(1, 2**40), copies)),
    )


def read_starts(starts: list[SlotStart]) -> list[Start]:
    return [Start(start.blocks, Chunk(start.slot, start.start, start.length, True)) for start in starts]


def plain(starts: list[Start]) -> list[tuple[list[int], Chunk]]:
    return [(start.blocks.tolist(), start.chunk._replace(is_final=True)) for start in starts]


def read_copies(copies: list[BlockCopy]) -> list[tuple[int, int, int]]:
    return [
        (c.source | HOST_BIT * c.source_is_host, c.target | HOST_BIT * c.target_is_host, c.group)
        for c in copies
    ]


@settings(deadline=None)
@given(decisions())
def test_a_worker_reads_the_step_that_was_decided(step: StepDecision) -> None:
    """M4."""
    raw = scheduler_delta.build_step(step, 3).SerializeToString()
    delta = worker_delta.parse_step(to_worker_pb2.SchedulerOutput.FromString(raw))
    assert (delta.step_id, delta.scheduler_epoch) == (step.step_id, 3)
    assert plain(read_starts(delta.started)) == plain(step.started)
    assert plain(read_starts(delta.resumed)) == plain(step.resumed)
    assert (delta.grant_slots.tolist(), delta.grant_blocks.tolist()) == (
        step.grant_slots.tolist(),
        step.grant_blocks.tolist(),
    )
    assert delta.chunks == [chunk[:3] for chunk in step.chunks]
    for name in ("finished_slots", "preempted_slots", "paused_slots", "unpaused_slots", "draft_limits"):
        assert getattr(delta, name) == getattr(step, name)
    assert read_copies(delta.copies) == step.copies
    if step.fence is None:
        assert delta.side_copies is None
    else:
        assert delta.side_copies is not None and delta.side_copies.fence == step.fence.fence_id
        assert read_copies(delta.side_copies.copies) == step.fence.copies


@st.composite
def reports(draw: st.DrawFn) -> StepReport:
    sealed = draw(st.lists(st.tuples(SLOT, SLOT, st.binary(min_size=16, max_size=16)), max_size=3))
    return StepReport(
        draw(st.integers(1, 2**40)),
        exceptions=draw(st.lists(st.tuples(SLOT, st.integers(0, 255)), max_size=3)),
        decode_counts=draw(st.none() | st.just(np.array([1, 0, 255], np.uint8))),
        not_run=draw(st.lists(st.tuples(SLOT, st.sampled_from(NotRunReason)), max_size=3)),
        finished=draw(st.lists(st.tuples(SLOT, st.sampled_from(FinishReason), POSITION), max_size=3)),
        sealed_slots=[slot for slot, _, _ in sealed],
        sealed_indexes=[index for _, index, _ in sealed],
        sealed_hashes=[name for _, _, name in sealed],
        draft_limits=draw(st.lists(st.tuples(SLOT, st.integers(0, 255)), max_size=3)),
        withdrawn_slots=draw(SLOTS),
        num_drafted=draw(POSITION),
    )


@settings(deadline=None)
@given(reports())
def test_a_scheduler_reads_the_report_that_was_made(made: StepReport) -> None:
    """M5."""
    raw = worker_delta.build_report(made).SerializeToString()
    report = scheduler_delta.parse_report(from_worker_pb2.ModelRunnerOutput.FromString(raw))
    pairs = zip(report.exception_slots.tolist(), report.exception_counts.tolist(), strict=True)
    assert list(pairs) == made.exceptions
    assert (report.decode_counts is None) == (made.decode_counts is None)
    if made.decode_counts is not None:
        assert report.decode_counts is not None and report.decode_counts.tolist() == [1, 0, 255]
    assert (report.not_run, report.finished) == (made.not_run, made.finished)
    assert (report.sealed_slots.tolist(), report.sealed_indexes.tolist()) == (
        made.sealed_slots,
        made.sealed_indexes,
    )
    assert report.sealed_hashes.tobytes() == b"".join(made.sealed_hashes)
    assert (report.draft_limits, report.withdrawn) == (made.draft_limits, made.withdrawn_slots)
    assert (report.step_id, report.num_draft_tokens) == (made.step_id, made.num_drafted)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(POSITION, POSITION, st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)), max_size=4
    ),
    st.booleans(),
)
def test_a_frontend_reads_the_tokens_that_were_made(
    rows: list[tuple[int, int, list[int]]], one_each: bool
) -> None:
    """R7."""
    if one_each:
        rows = [(attempt, start, tokens[:1] or [4]) for attempt, start, tokens in rows]
    attempts, starts, tokens = zip(*rows, strict=True) if rows else ((), (), ())
    output = FrontendOutput(
        "f",
        np.array(attempts, np.uint32),
        np.array(starts, np.uint32),
        None if one_each else np.array([len(each) for each in tokens], np.uint8),
        blocks(*(token for each in tokens for token in each)),
    )
    batch = worker_pb2.OutputBatch.FromString(worker_delta.build_outputs(output, 1).SerializeToString())
    assert read_outputs(batch) == [(attempt, start, tuple(each)) for attempt, start, each in rows]


GROUPS = {name: group for name, group in vars(columns).items() if isinstance(group, Columns)}
MESSAGES = (
    to_worker_pb2.ScheduledNewReqs,
    to_worker_pb2.GroupStarts,
    to_worker_pb2.CachedRequestData,
    to_worker_pb2.BlockCopies,
    to_worker_pb2.SchedulerOutput,
    to_worker_pb2.Checkpoints,
    to_worker_pb2.Handoffs,
    to_worker_pb2.ImportStarts,
    from_worker_pb2.ModelRunnerOutput,
    worker_pb2.OutputBatch,
)


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_columns_of_one_message(name: str) -> None:
    names = [column for column, _ in GROUPS[name].widths]
    homes = [m for m in MESSAGES if all(column in m.DESCRIPTOR.fields_by_name for column in names)]
    assert homes
    rows = [tuple(MOST[width] for _, width in GROUPS[name].widths), (0,) * len(names)]
    for home in homes:
        message = home()
        GROUPS[name].write(message, rows)
        assert GROUPS[name].read(message) == rows
        setattr(message, names[0], b"\0" * len(getattr(message, names[0])) * 2)
        with pytest.raises(ValueError):
            GROUPS[name].read(message)


def test_a_column_that_ends_within_an_element() -> None:
    with pytest.raises(ValueError):
        GRANTS.read(to_worker_pb2.CachedRequestData(new_block_slots=b"\0\0", new_block_ids=b"\0\0\0"))
