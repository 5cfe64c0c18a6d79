"""A host tier with places for each group and for checkpoints: what goes out, what comes back, and where to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.liveness.withdrawal import withdraw
from scheduler_svc.core.recovery.kept_cache import keep_cache
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.checkpoints import Kind
from scheduler_svc.core.state.steps.step import StepDecision, StepRecord
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_check import check_state
from scheduler_svc.links.codec.delta import parse_offer
from signalbox.protocol.block_groups import SPINE, BlockGroup, StateGroup
from signalbox.protocol.columns import HOST_BIT
from signalbox.protocol.enums import BlockGroupKind
from signalbox.v1 import from_worker_pb2
from tests.scheduler_svc.harness import WORKER, make_info, make_request, report_for, run_step
from worker_svc.core.batch import RunnerInfo
from worker_svc.links.delta import build_groups, build_state_group, host_blocks_of

SIZE = 4
WINDOW = BlockGroup(BlockGroupKind.WINDOW, 6, 12, num_host_blocks=8)
"""Six positions lie in two blocks or three."""
STATES = StateGroup(8, 2, num_host_checkpoints=4)
NO_BLOCKS = np.empty(0, np.int32)


def content(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(16, "little") for number in numbers)


def hashes(*numbers: int) -> Any:
    return np.frombuffer(content(*numbers), HASH_DTYPE)


def make_ring(
    groups: tuple[BlockGroup, ...] = (WINDOW,), states: StateGroup | None = None, **settings: Any
) -> tuple[Scheduler, Worker]:
    """A scheduler and its one worker, with nothing cached."""
    values = {
        "max_inflight_steps": 1,
        "max_num_seqs": 4,
        "side_copy_blocks": 0,
        "watermark_blocks_per_seq": 0,
    } | settings
    scheduler = Scheduler(SchedulerConfig(**values), epoch=1, now=0.0)
    scheduler.attach_worker(make_info(num_host_blocks=8, groups=groups, state_group=states), None, 0.0)
    return scheduler, scheduler.workers[WORKER]


def cache(worker: Worker, group: int, *numbers: int) -> list[int]:
    """Blocks of the device have this content of a group."""
    pool = worker.tiers[group].pool
    blocks = pool.take(len(numbers))
    pool.publish(blocks, hashes(*numbers))
    pool.release(blocks)
    found: list[int] = blocks.tolist()
    return found


def save(worker: Worker, group: int, *numbers: int) -> list[int]:
    """Blocks of the host tier have it."""
    stored = [worker.hosts[group].store(content(number), frozenset()) for number in numbers]
    return [block for block in stored if block is not None]


def start(scheduler: Scheduler, num_tokens: int, *numbers: int, name: str = "r") -> StepDecision:
    """A request comes, whose prompt has these blocks; the step behind."""
    scheduler.submit(make_request(name, num_tokens, hashes=content(*numbers)), 0.0)
    made = scheduler.schedule(WORKER, 0.0)
    scheduler.check_integrity()
    assert made is not None
    return made


def test_each_block_comes_from_where_it_is() -> None:
    """X11, X12: the window of a hit of five blocks lies in two of a group, of which the device has the last."""
    scheduler, worker = make_ring()
    spine = cache(worker, SPINE, 0, 1, 2)
    from_spine, from_window = save(worker, SPINE, 3, 4), save(worker, 1, 3)
    (last,) = cache(worker, 1, 4)
    made = start(scheduler, 22, *range(5))
    (begun,) = made.started
    assert begun.chunk.start == 20 and begun.blocks[:3].tolist() == spine
    ((first, table),) = begun.windows
    assert (first, table[1]) == (3, last)
    assert made.copies == [
        *(BlockCopy(s | HOST_BIT, t) for s, t in zip(from_spine, begun.blocks[3:5].tolist(), strict=True)),
        BlockCopy(from_window[0] | HOST_BIT, int(table[0]), 1),
    ]
    assert (worker.windows[0].find(hashes(3, 4)) >= 0).all(), "others may share what is brought already"
    assert worker.stats.num_host_hit_tokens == 20


def test_a_hit_is_what_all_groups_have_in_one_tier_or_the_other() -> None:
    """X12, WB5: the host tier has more of the spine, and nothing that a query there looks back at."""
    scheduler, worker = make_ring()
    cache(worker, SPINE, 0, 1, 2, 3)
    save(worker, SPINE, 4, 5)
    cache(worker, 1, 1)
    save(worker, 1, 2)
    made = start(scheduler, 25, *range(6))
    assert made.started[0].chunk.start == 12
    assert [copy.group for copy in made.copies] == [1]
    assert worker.windows[0].branches[0].tolist() == [6, 6], "there prompts part"


def test_nothing_is_copied_where_the_device_has_as_long_a_prefix() -> None:
    """X12."""
    scheduler, worker = make_ring()
    cache(worker, SPINE, 0, 1, 2)
    cache(worker, 1, 1, 2)
    save(worker, 1, 1, 2, 3)
    made = start(scheduler, 13, 0, 1, 2)
    assert made.started[0].chunk.start == 12 and not made.copies
    assert not worker.stats.num_host_hit_tokens


def test_what_loses_its_place_goes_out_in_its_group_but_not_what_a_window_has_passed() -> None:
    """X1, X11, X12, WB9: a prompt of six blocks ends. Its last blocks are saved, those of its middle are not."""
    scheduler, worker = make_ring(max_num_batched_tokens=8)
    (window,) = worker.windows
    scheduler.submit(make_request("r", 25, hashes=content(*range(6))), 0.0)
    for _ in range(5):
        run_step(scheduler)
    scheduler.cancel(worker.request(0).key, 1)
    run_step(scheduler)
    assert (window.find(hashes(0, 5)) >= 0).all()
    step = StepDecision(99)
    taken = window.pool.take(window.pool.num_available)
    worker.save_evicted(step)
    window.pool.release(taken)
    assert step.copies and {copy.group for copy in step.copies} == {1}
    assert worker.hosts[1].holds(content(5)) and not worker.hosts[1].holds(content(0))
    assert not len(worker.host), "the spine has lost nothing"
    check_state(worker)


def test_a_fence_has_blocks_of_all_groups() -> None:
    """X4, X5, X11: what it brings and saves is nobody's until it ends; then the start copies nothing."""
    scheduler, worker = make_ring(side_copy_blocks=1)
    cache(worker, SPINE, 0, 1)
    from_spine, from_window = save(worker, SPINE, 2), save(worker, 1, 1, 2)
    made = start(scheduler, 13, 0, 1, 2)
    fence = made.fence
    assert fence is not None and not made.started
    assert [(copy.source & ~HOST_BIT, copy.group) for copy in fence.copies] == [
        (from_spine[0], SPINE),
        *((block, 1) for block in from_window),
    ]
    (window,) = worker.windows
    assert (worker.pool.num_fenced, window.pool.num_fenced) == (1, 2)
    for number in range(90, 120):  # other content never takes the places that are read
        save(worker, 1, number)
    assert worker.hosts[1].find([content(1), content(2)]) == from_window
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.fence_ended(WORKER, fence.fence_id, failed=False)
    scheduler.check_integrity()
    behind = scheduler.schedule(WORKER, 0.0)
    assert behind is not None and behind.started[0].chunk.start == 12 and not behind.copies
    assert window.pool.num_fenced == 0


def test_who_goes_behind_leaves_the_blocks_of_every_group() -> None:
    """X7: two blocks of a group are fenced, and what the one who waits starts with besides is kept for it."""
    scheduler, worker = make_ring((replace(WINDOW, num_blocks=5),), side_copy_blocks=1)
    cache(worker, SPINE, 0, 1, 2)
    save(worker, 1, 1, 2)
    made = start(scheduler, 24, 0, 1, 2)
    assert made.fence is not None
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.submit(make_request("behind", 12), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is None
    assert worker.windows[0].pool.num_available == 3, "as many as it needs"


def test_a_checkpoint_goes_out_and_comes_back() -> None:
    """X13, CK7, CK8: of the two places, the state at 16 takes one that had another's, which is saved first."""
    scheduler, worker = make_ring((), STATES)
    states = worker.checkpoints
    assert states is not None
    cache(worker, SPINE, 0, 1, 2, 3)
    old = cache(worker, 1, 70, 71)
    (saved,) = save(worker, 1, 3)
    states._saved_kinds[saved] = Kind.END
    made = start(scheduler, 18, 0, 1, 2, 3)
    (begun,) = made.started
    assert (begun.chunk.start, begun.checkpoint) == (16, old[1])
    out, back = made.copies
    assert (out.source, out.group, back) == (old[1], 1, BlockCopy(saved | HOST_BIT, old[1], 1))
    assert out.target != back.source and worker.hosts[1].holds(content(71))
    assert states._kinds[old[1]] == Kind.END, "where it was made stays known"


def test_a_state_is_brought_back_only_where_there_is_a_place() -> None:
    """X13: all checkpoints are held."""
    scheduler, worker = make_ring((), STATES)
    assert worker.checkpoints is not None
    cache(worker, SPINE, 0, 1, 2, 3)
    save(worker, 1, 3)
    held = worker.checkpoints.pool.take(2)
    scheduler.submit(make_request("r", 18, hashes=content(0, 1, 2, 3)), 0.0)
    made = scheduler.schedule(WORKER, 0.0)
    assert made is not None and made.started[0].chunk.start == 0 and not made.copies
    worker.checkpoints.pool.release(held)
    scheduler.check_integrity()


def test_what_turned_out_to_be_wrong_is_forgotten_in_every_tier() -> None:
    """WB7, X11, N2."""
    scheduler, worker = make_ring((WINDOW,), STATES)
    start(scheduler, 14, 1, 2, 3)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    for group in range(3):
        save(worker, group, 1, 2, 9)
    withdraw(worker, [0], scheduler.register)
    for host in worker.hosts:
        assert [host.holds(content(number)) for number in (1, 2, 9)] == [False, False, True]


@pytest.mark.parametrize("group", [SPINE, 1, 2])
def test_copies_of_steps_that_never_came_are_not_there(group: int) -> None:
    """J8, X11."""
    _, old = make_ring((WINDOW,), STATES)
    (device,), (host,) = cache(old, group, 1), save(old, group, 2)
    copies = [BlockCopy(5, host | HOST_BIT, group), BlockCopy(host | HOST_BIT, device, group)]
    record = StepRecord(8, old.table.advance, np.empty(0, np.int64), 0, False, [], 0, [], copies=copies)
    old.records.append(record)
    worker = Worker(old.info, old.limits)
    keep_cache(worker, old, 7, [NO_BLOCKS, NO_BLOCKS])
    found = worker.tiers[group].find(hashes(1, 2))
    assert found.blocks.tolist() == found.host_blocks.tolist() == [-1, -1]
    check_state(worker)


def test_a_hello_says_the_places_of_each_group() -> None:
    """X11, R10: who knows of one group in a host tier sees none."""
    info = RunnerInfo("m", 32, 4, 64, 100, (), num_host_blocks=7, groups=(WINDOW,), state_group=STATES)
    hello = from_worker_pb2.WorkerHello(
        groups=build_groups(info), state_group=build_state_group(info), **host_blocks_of(info)
    )
    assert hello.num_host_blocks == 0
    offer = parse_offer(hello)
    assert (offer.num_host_blocks, offer.groups, offer.state_group) == (7, (WINDOW,), STATES)
    plain = from_worker_pb2.WorkerHello(**host_blocks_of(replace(info, groups=(), state_group=None)))
    assert plain.num_host_blocks == 7
