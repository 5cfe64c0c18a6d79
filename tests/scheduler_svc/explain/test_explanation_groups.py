"""What is said of requests of a model with groups of layers, and states: which of these lack what, and who makes it."""

from __future__ import annotations

import os
from typing import Any

from scheduler_svc.core.explain.explanation import explain, find_requests
from scheduler_svc.core.explain.obstacle import Reason
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import RequestStatus
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind
from signalbox.protocol.hash_chain import HASH_BYTES
from tests.scheduler_svc.explain.test_explanation import submit, why
from tests.scheduler_svc.harness import WORKER, make_info, report_for, run_step


def hybrid(num_window_blocks: int = 20, num_checkpoints: int = 4, **settings: Any) -> Scheduler:
    """A scheduler whose worker has a window of 6 positions and checkpoints at each 8, in blocks of 4."""
    values: dict[str, Any] = {"max_inflight_steps": 1, "watermark_blocks_per_seq": 0} | settings
    scheduler = Scheduler(SchedulerConfig(**values), epoch=1, now=0.0)
    window = BlockGroup(BlockGroupKind.WINDOW, 6, num_window_blocks)
    info = make_info(groups=(window,), state_group=StateGroup(8, num_checkpoints))
    scheduler.attach_worker(info, None, 0.0)
    return scheduler


def test_who_waits_for_a_state_is_told_whose() -> None:
    """CK4: the blocks alone are of no use to it."""
    hashes = os.urandom(6 * HASH_BYTES)
    scheduler = hybrid(max_num_batched_tokens=10)
    submit(scheduler, "leader", "follower", num_prompt=25, hashes=hashes)
    run_step(scheduler)
    explained = why(scheduler, "follower")
    assert explained.reason is Reason.PREFIX
    assert explained.sentence == (
        "request leader computes the state behind the first 24 tokens, which both of them begin with, and is to keep it"
    )
    run_step(scheduler)
    run_step(scheduler)
    run_step(scheduler)
    assert why(scheduler, "follower").reason is Reason.RUNS
    assert why(scheduler, "follower").request.history.num_cached_tokens == 24, "and it is so"


def test_who_waits_for_a_state_is_told_when_there_may_be_no_checkpoint() -> None:
    """CK7: the only one is being written."""
    hashes = os.urandom(6 * HASH_BYTES)
    scheduler = hybrid(num_checkpoints=1, max_num_batched_tokens=10)
    submit(scheduler, "leader", "follower", num_prompt=25, hashes=hashes)
    run_step(scheduler)
    states = scheduler.workers[WORKER].checkpoints
    assert states is not None
    taken = states.pool.take(1)
    explained = explain(scheduler, find_requests(scheduler, "follower")[0], 0.0)
    assert explained.sentence.endswith(
        "and is to keep it, if one of the 1 checkpoints of w is not in use then"
    )
    states.pool.release(taken)
    assert why(scheduler, "follower").sentence.endswith("and is to keep it")


def test_of_blocks_that_are_short_the_layers_are_named() -> None:
    """GR4."""
    scheduler = hybrid(num_window_blocks=5, watermark_blocks_per_seq=1)
    submit(scheduler, "a", num_prompt=20)
    run_step(scheduler)
    submit(scheduler, "b", num_prompt=20)
    explained = why(scheduler, "b")
    assert explained.reason is Reason.NO_BLOCKS
    assert explained.sentence == (
        "it needs 3 more blocks for layers with a window of 6 positions and 1 to spare for those that run on w; "
        "3 of 5 are free"
    )
    spine = scheduler.workers[WORKER].pool
    spine.take(spine.num_available - 2)
    explained = explain(scheduler, find_requests(scheduler, "b")[0], 0.0)
    assert explained.sentence.startswith("it needs 5 more blocks of the whole sequence and 1 to spare")


def test_a_row_and_a_prompt_are_told_which_layers_lack_a_block() -> None:
    """GR3, GR5."""
    scheduler = hybrid(max_num_batched_tokens=9)
    submit(scheduler, "a", num_prompt=7)
    run_step(scheduler)
    submit(scheduler, "long", num_prompt=40)
    run_step(scheduler)
    window = scheduler.workers[WORKER].windows[0].pool
    window.take(window.num_available)
    explained = explain(scheduler, find_requests(scheduler, "long")[0], 0.0)
    assert (explained.reason, explained.sentence) == (
        Reason.NO_BLOCKS,
        "its next chunk needs another block for layers with a window of 6 positions on w; 0 of 20 are free",
    )
    scheduler = hybrid()
    submit(scheduler, "a", num_prompt=7)
    run_step(scheduler)
    window = scheduler.workers[WORKER].windows[0].pool
    window.take(window.num_available)
    while not scheduler.workers[WORKER].table.held:
        scheduler.schedule(WORKER, 0.0)
        scheduler.update(WORKER, report_for(scheduler), 0.0)
    explained = explain(scheduler, find_requests(scheduler, "a")[0], 0.0)
    assert (explained.reason, explained.sentence) == (
        Reason.NO_BLOCKS,
        "its next token needs another block for layers with a window of 6 positions on w; 0 of 20 are free",
    )


def test_blocks_that_prompts_before_it_take_in_the_step_are_not_free() -> None:
    """GR4. Of four blocks one is for the next chunk of a prompt that goes on."""
    scheduler = hybrid(num_window_blocks=5, max_num_batched_tokens=64, long_prefill_token_threshold=4)
    submit(scheduler, "long", num_prompt=40)
    run_step(scheduler)
    run_step(scheduler)
    submit(scheduler, "b", num_prompt=20)
    explained = why(scheduler, "b")
    assert explained.reason is Reason.NO_BLOCKS
    assert explained.sentence.endswith("with a window of 6 positions on w; 2 of 5 are free")
    run_step(scheduler)
    assert explained.request.status is RequestStatus.WAITING, "and it is so"
