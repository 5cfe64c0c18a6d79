"""Copies of a device's memory are ordered against its steps, whenever its streams do what they were given."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.worker_svc.runner.cuda.copies import scenario
from tests.worker_svc.runner.cuda.copies.scenario import Scenario, WrongContentError, next_block, other_layer
from tests.worker_svc.runner.cuda.copies.streams import EarlyStreams, LateStreams, UnorderedStreams
from worker_svc.runner.cuda.copies import copier
from worker_svc.runner.cuda.copies.blocks import DeviceBlocks
from worker_svc.runner.cuda.copies.copier import BlockCopier
from worker_svc.runner.cuda.copies.levels import I64, levels_of
from worker_svc.runner.cuda.copies.order import HostOrder
from worker_svc.runner.cuda.copies.rows import PlacedRows, move_by_torch
from worker_svc.transfer.errors import TransferError

SEEDS = range(12)


def run_all(
    streams: Callable[[int], LateStreams] = LateStreams,
    plant: Callable[[scenario.Move], scenario.Move] = lambda move: move,
) -> int:
    """How often a copy had to wait for a step."""
    total = 0
    for seed in SEEDS:
        made = streams(seed)
        Scenario(made, move_by_torch, seed, plant).run()
        total += made.num_waits
    return total


def test_what_is_read_is_what_was_written() -> None:
    """TR12 to TR15, X5, X9, X13: blocks of all groups, checkpoints and states."""
    assert run_all() > 50


@pytest.mark.parametrize("streams", [UnorderedStreams, EarlyStreams])
def test_streams_that_do_not_wait_are_found(streams: type[LateStreams]) -> None:
    """TR13: a copy that does not wait for the step that writes; a block that is used before its copy has ended."""
    with pytest.raises(WrongContentError):
        run_all(streams)


@pytest.mark.parametrize("plant", [next_block, other_layer])
def test_wrong_rows_are_found(plant: Callable[[scenario.Move], scenario.Move]) -> None:
    with pytest.raises(WrongContentError):
        run_all(plant=plant)


def test_copies_that_are_not_put_in_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """TR12."""
    monkeypatch.setattr(copier, "by_level", lambda columns: [columns])
    with pytest.raises(WrongContentError):
        run_all()


def test_what_no_results_tell_of_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """TR14: copies of a step without rows, and a launch that was lost."""
    monkeypatch.setattr(BlockCopier, "note", lambda self: None)
    with pytest.raises(WrongContentError):
        run_all()


def test_levels_keep_the_order_of_what_depends_on_each_other() -> None:
    """TR12: in few levels where copies come in pairs, out and in."""
    out_and_in = [(0, 5, 1, 3), (1, 7, 0, 5), (0, 6, 1, 4), (1, 8, 0, 6)]
    assert levels_of(np.array(out_and_in)).tolist() == [0, 1, 0, 1]
    chain = [(0, 1, 0, 2), (0, 2, 0, 3), (0, 9, 0, 3), (0, 9, 0, 1)]
    assert levels_of(np.array(chain)).tolist() == [0, 1, 2, 1]


def test_a_device_that_copies_wrongly_does_not_start() -> None:
    """TR12: what is launched is tried at the start."""
    cache, layout = scenario.make_cache()
    for group in range(2):
        for stored in cache.stored_in(group):
            for block, row in enumerate(stored):
                row.fill_(block)
    with pytest.raises(RuntimeError, match="a block that was copied to the host is another there"):
        DeviceBlocks(cache, layout, None, HostOrder(), next_block(move_by_torch))


def test_a_launch_that_fails_is_waited_for() -> None:
    """TR15, TR7: the transfer ends, and the buffer is free for the next one."""
    cache, layout = scenario.make_cache()
    fails = [False]

    def move(rows: PlacedRows, columns: I64) -> None:
        if fails[0]:
            raise RuntimeError("no memory for the copy")
        move_by_torch(rows, columns)

    blocks = DeviceBlocks(cache, layout, None, HostOrder(), move)
    content = bytes(range(256)) * (blocks.bytes_per_block(1) // 64)
    fails[0] = True
    with pytest.raises(TransferError, match="could not be written on the device: no memory for the copy"):
        blocks.write(1, [0, 3], content[: 2 * blocks.bytes_per_block(1)])
    fails[0] = False
    blocks.write(1, [0, 3], content[: 2 * blocks.bytes_per_block(1)])
    assert blocks.read(1, [0, 3]) == content[: 2 * blocks.bytes_per_block(1)]
    with pytest.raises(TransferError, match="a block of group 1 is none of 6"):
        blocks.read(1, [6])


def test_the_buffer_is_one_callers_until_it_was_read() -> None:
    """TR15."""
    gate, begun = threading.Event(), threading.Event()

    class Gated(HostOrder):
        def run_aside(self, work, after):  # type: ignore[no-untyped-def]
            begun.set()
            mark = super().run_aside(work, after)
            assert gate.wait(10)
            return mark

    cache, layout = scenario.make_cache()
    gate.set()
    blocks = DeviceBlocks(cache, layout, None, Gated(), move_by_torch)
    gate.clear()
    begun.clear()
    for stored in cache.stored_in(0):
        for block, row in enumerate(stored):
            row.fill_(block)
    found: dict[int, bytes] = {}
    threads = [
        threading.Thread(target=lambda block=block: found.update({block: blocks.read(0, [block])}))
        for block in (3, 5)
    ]
    threads[0].start()
    assert begun.wait(10)
    begun.clear()
    threads[1].start()
    assert not begun.wait(0.1), "the other one waits"
    gate.set()
    for thread in threads:
        thread.join(10)
    assert all((np.frombuffer(found[block], np.float32) == block).all() for block in (3, 5))
