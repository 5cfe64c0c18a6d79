"""The work of masks is charged to the tenant whose form asked for it (docs/design.md, Q7, Q8)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.queue.mask_seconds import OTHER, MaskSeconds
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.step.report import DivergenceError
from signalbox.protocol.enums import FinishReason
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, report_for

STEP_US = 10_000


def started(policy: str = "fair", **settings: object) -> tuple[Scheduler, Request, Request]:
    """A request of each of two tenants, behind a step that computed their prompts of 8 tokens."""
    scheduler = make_scheduler(policy=policy, **settings)
    requests = []
    for tenant in ("a", "b"):
        request = make_request(f"of {tenant}", 8, max_tokens=100)
        request.tenant = tenant
        assert scheduler.submit(request, 0.0) is None
        requests.append(request)
    step(scheduler, [])
    return scheduler, requests[0], requests[1]


def step(
    scheduler: Scheduler, mask_us: list[tuple[int, int]], finished: tuple[tuple[int, int, int], ...] = ()
) -> None:
    """Runs a step of STEP_US that reports such work."""
    assert scheduler.schedule(WORKER, 0.0) is not None
    report = report_for(scheduler, finished)
    report.duration_us, report.mask_us = STEP_US, mask_us
    scheduler.update(WORKER, report, 0.0)


def service(scheduler: Scheduler, *requests: Request) -> list[float]:
    return [scheduler.queues.service_received(request) for request in requests]


def test_a_microsecond_of_masks_costs_like_one_of_steps() -> None:
    """The first step is worth 2 x 8 prompt tokens and 2 output tokens of 2, the second 2 output tokens."""
    scheduler, a, b = started()
    before = service(scheduler, a, b)
    step(scheduler, [(a.slot, 5_000)])
    gained = [now - then for now, then in zip(service(scheduler, a, b), before, strict=True)]
    assert gained[1] == 2.0, "an output token"
    assert gained[0] == pytest.approx(2.0 + 5_000 * (20.0 + 4.0) / (2 * STEP_US))


def test_a_tenant_of_more_weight_pays_less() -> None:
    scheduler, a, b = started()
    a.entry.account.tenant.limits = a.entry.account.tenant.limits.model_copy(update={"weight": 4.0})
    scheduler.queues._ledger.set_weight(a.entry.account.index, 4.0)
    before = service(scheduler, a, b)
    step(scheduler, [(a.slot, 8_000), (b.slot, 8_000)])
    gained = [now - then for now, then in zip(service(scheduler, a, b), before, strict=True)]
    assert gained[0] == pytest.approx(gained[1] / 4)


def test_a_request_that_ends_with_the_report_is_charged() -> None:
    scheduler, a, _ = started()
    before = service(scheduler, a)[0]
    step(scheduler, [(a.slot, 5_000)], ((a.slot, FinishReason.STOP, 2),))
    assert service(scheduler, a)[0] > before + 2.0
    assert scheduler.queues.mask_seconds.by_tenant == {"a": pytest.approx(0.005)}


def test_a_report_out_of_step_is_not_charged() -> None:
    scheduler, a, _ = started()
    assert scheduler.schedule(WORKER, 0.0) is not None
    report = report_for(scheduler)
    report.step_id -= 1
    report.mask_us = [(a.slot, 5_000)]
    before = service(scheduler, a)
    with pytest.raises(DivergenceError):
        scheduler.update(WORKER, report, 0.0)
    assert service(scheduler, a) == before
    assert not scheduler.queues.mask_seconds.by_tenant


def test_a_slot_that_nobody_has_is_charged_to_nobody() -> None:
    scheduler, a, b = started()
    before = service(scheduler, a, b)
    step(scheduler, [(7, 5_000), (60_000, 5_000)])
    assert service(scheduler, a, b) == [each + 2.0 for each in before]


def test_seconds_by_tenant_are_counted_whatever_the_policy() -> None:
    scheduler, a, b = started("fcfs")
    step(scheduler, [(a.slot, 2_000), (b.slot, 500_000)])
    assert scheduler.queues.mask_seconds.by_tenant == {"a": 0.002, "b": 0.5}


def test_tenants_beyond_the_most_are_counted_together() -> None:
    seconds = MaskSeconds(max_tenants=2)
    for tenant in ("a", "b", "c", "a", "d"):
        seconds.add(tenant, 1_000_000)
    assert seconds.by_tenant == {"a": 2.0, "b": 1.0, OTHER: 2.0}


def test_who_had_the_masks_waits_for_the_others() -> None:
    """Both have had as many tokens; the next place is the other's."""
    scheduler, a, b = started(max_num_seqs=2)
    for request in (a, b):
        for number in range(2):
            more = make_request(f"{request.tenant} {number}", 8, max_tokens=100)
            more.tenant = request.tenant
            assert scheduler.submit(more, 0.0) is None
    step(scheduler, [(a.slot, 400_000)])
    queue = scheduler.queues.of(a.model)
    waiting = [(each.tenant, scheduler.queues.service_received(each)) for each in queue]
    assert max(v for t, v in waiting if t == "b") < min(v for t, v in waiting if t == "a")
