"""Which requests may wait while a model has no worker."""

from __future__ import annotations

import pytest

from scheduler_svc.core.notices import Rejected
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler


@pytest.mark.parametrize(("at", "is_refused"), [(24.9, False), (25.0, True)])
def test_the_grace_of_a_model_begins_when_its_last_worker_went(at: float, is_refused: bool) -> None:
    scheduler = make_scheduler(worker_grace_s=5.0, no_worker_grace_s=10.0)
    scheduler.detach_worker(WORKER, 10.0)
    scheduler.tick(15.0)
    assert not scheduler.workers
    scheduler.submit(make_request("a", 3), at)
    assert [isinstance(notice, Rejected) for notice in scheduler.drain_notices()] == [True] * is_refused
