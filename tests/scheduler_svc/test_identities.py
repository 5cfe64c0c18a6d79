"""Workers of one model with other weights, another form or other kernels: I7 to I9."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler_svc.core.queue.refusal import malformation_of
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.evidence import Exit
from scheduler_svc.core.state.requests.request import BlockNames
from scheduler_svc.core.state.steps.step import StepReport
from signalbox.protocol.enums import WorkerExit, WorkerHealth
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.protocol.model_identity import ModelIdentity
from tests.scheduler_svc.harness import MODEL, WORKER, make_info, make_request, make_scheduler

OLD = ModelIdentity("aaaaaaaaaaaaaaaa", "bfloat16", "cpu")
NEW = ModelIdentity("bbbbbbbbbbbbbbbb", "bfloat16", "cpu")
ROUNDED = replace(OLD, form="bfloat16, 168 int8/32")
TOKENS = bytes(13 * 4)


def make_pool(**settings: object) -> Scheduler:
    """Two workers of one model: `old` and `new`."""
    scheduler = make_scheduler(max_inflight_steps=1, **settings)
    scheduler.workers.clear()
    for name, identity in (("old", OLD), ("new", NEW)):
        scheduler.attach_worker(make_info(worker_id=name, instance=name, identity=identity), None, 0.0)
    return scheduler


def names_for(identity: ModelIdentity) -> BlockNames:
    root = root_hash(MODEL, identity=identity.key)
    return BlockNames(identity.key, root, chain_hashes(root, TOKENS, 4))


def step_of(scheduler: Scheduler, worker: str, now: float = 0.0) -> list[int]:
    """Where the requests that a step of the worker starts begin; it is reported."""
    step = scheduler.schedule(worker, now)
    if step is None:
        return []
    record = scheduler.workers[worker].records[0]
    report = StepReport(record.step_id, record.num_decode_rows, record.num_prefill_tokens)
    scheduler.update(worker, report, now)
    return [start.chunk.start for start in step.started]


def submit_named(scheduler: Scheduler, name: str, *names: BlockNames) -> None:
    first, *others = names
    request = make_request(
        name,
        13,
        hashes=first.hashes,
        root_hash=first.root,
        identity=first.identity,
        other_names=tuple(others),
    )
    scheduler.submit(request, 0.0)


@pytest.mark.parametrize("other", [NEW, ROUNDED, replace(OLD, number_class="cuda sm_90")])
def test_every_part_of_an_identity_names_other_blocks(other: ModelIdentity) -> None:
    """I7: the planted bug, an identity left out of the root, makes them the same names."""
    size = 16
    old, new = names_for(OLD).hashes, names_for(other).hashes
    named = {old[i : i + size] for i in range(0, len(old), size)}
    assert named.isdisjoint(new[i : i + size] for i in range(0, len(new), size))


def test_blocks_are_found_by_the_names_of_their_own_identity_only() -> None:
    """I8."""
    scheduler = make_pool()
    for worker in ("old", "new"):
        scheduler.drain_worker("new" if worker == "old" else "old", True, 0.0)
        scheduler.drain_worker(worker, False, 0.0)
        submit_named(scheduler, f"first on {worker}", names_for(OLD), names_for(NEW))
        assert step_of(scheduler, worker) == [0], "nothing is cached"
        submit_named(scheduler, f"second on {worker}", names_for(OLD), names_for(NEW))
        assert step_of(scheduler, worker) == [12]
    pools = [scheduler.workers[name].pool for name in ("old", "new")]
    assert (
        pools[0].prefix_length(names_for(OLD).hashes) == 3
        and pools[1].prefix_length(names_for(NEW).hashes) == 3
    )
    assert not pools[0].prefix_length(names_for(NEW).hashes) and not pools[1].prefix_length(
        names_for(OLD).hashes
    )


def test_without_names_for_its_identity_a_worker_knows_and_caches_nothing() -> None:
    """I8."""
    scheduler = make_pool()
    scheduler.drain_worker("old", True, 0.0)
    for name in ("a", "b"):
        submit_named(scheduler, name, names_for(OLD))
        assert step_of(scheduler, "new") == [0]
    assert not scheduler.workers["new"].pool.num_cached


def test_an_output_goes_on_where_its_identity_is() -> None:
    """I9: though the other worker has nothing to do, and this one has."""
    scheduler = make_pool()
    scheduler.submit(make_request("busy", 13, output_identity=OLD.key, num_prior_output_tokens=2), 0.0)
    assert step_of(scheduler, "new") == [] and len(step_of(scheduler, "old")) == 1
    scheduler.submit(make_request("more", 13, output_identity=OLD.key, num_prior_output_tokens=2), 0.0)
    assert step_of(scheduler, "new") == []
    step = scheduler.schedule("old", 0.0)
    assert step is not None and len(step.started) == 1


def test_what_has_no_output_runs_anywhere() -> None:
    """I9."""
    scheduler = make_pool()
    scheduler.drain_worker("old", True, 0.0)
    scheduler.submit(make_request("a", 13), 0.0)
    assert step_of(scheduler, "new") == [0]


def test_an_output_goes_on_elsewhere_when_the_last_of_its_own_is_drained() -> None:
    """I9: weights are being replaced; nobody waits for what will not come."""
    scheduler = make_pool()
    scheduler.submit(make_request("a", 13, output_identity=OLD.key, num_prior_output_tokens=2), 0.0)
    assert step_of(scheduler, "new") == []
    scheduler.drain_worker("old", True, 0.0)
    assert len(step_of(scheduler, "new")) == 1


def test_an_output_waits_for_a_crashed_worker_to_come_back_for_a_time() -> None:
    """I9."""
    scheduler = make_pool(no_worker_grace_s=30.0)
    process = scheduler.workers["old"].process
    scheduler.detach_worker("old", 100.0)
    scheduler.worker_ended(process, Exit(WorkerExit.CRASHED, "signal 11", 100.0), 100.0)
    assert "old" not in scheduler.workers
    scheduler.submit(make_request("a", 13, output_identity=OLD.key, num_prior_output_tokens=2), 100.0)
    assert step_of(scheduler, "new", 129.0) == []
    assert len(step_of(scheduler, "new", 130.0)) == 1


def test_nobody_waits_for_ever_for_a_worker_that_takes_nothing() -> None:
    """I9."""
    scheduler = make_pool(no_worker_grace_s=30.0)
    scheduler.workers["old"].vitals.health = WorkerHealth.SLOW
    scheduler.submit(make_request("a", 13, output_identity=OLD.key, num_prior_output_tokens=2), 50.0)
    assert step_of(scheduler, "new", 79.0) == []
    assert len(step_of(scheduler, "new", 80.0)) == 1


def test_who_differs_is_told_by_both_names() -> None:
    """I9."""
    scheduler = make_pool()
    (told,) = scheduler.liveness.news
    for part in ("new", "old", NEW.weights[:12], OLD.weights[:12], repr(MODEL)):
        assert part in told


def test_workers_of_one_identity_are_no_news() -> None:
    scheduler = make_scheduler()
    scheduler.attach_worker(make_info(worker_id="b", instance="b"), None, 0.0)
    assert not scheduler.liveness.news


def test_names_that_are_none_are_refused() -> None:
    """Z4."""
    names = names_for(NEW)
    for broken in (replace(names, hashes=b"x"), replace(names, root=b"x")):
        refused = malformation_of(make_request("a", 13, other_names=(broken,)))
        assert refused is not None and refused.code == "InvalidRequestError"
    refused = malformation_of(make_request("a", 13, other_names=(names,) * 4))
    assert refused is not None and refused.field == "other_names"


@pytest.mark.parametrize("reuses", [True, False])
def test_a_worker_that_reuses_no_blocks_computes_each_prompt(reuses: bool) -> None:
    """SG7. Also a request's own after its preemption, and one that waits for nobody who computes the same."""
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.workers.clear()
    scheduler.attach_worker(make_info(identity=OLD, reuses_blocks=reuses), None, 0.0)
    submit_named(scheduler, "first", names_for(OLD))
    submit_named(scheduler, "beside it", names_for(OLD))
    starts = step_of(scheduler, WORKER) + step_of(scheduler, WORKER)
    assert starts == ([0, 12] if reuses else [0, 0])
    submit_named(scheduler, "later", names_for(OLD))
    assert step_of(scheduler, WORKER) == ([12] if reuses else [0])
    scheduler.check_integrity()
