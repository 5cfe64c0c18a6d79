"""Whose masks take turns on a worker."""

from __future__ import annotations

import pytest

from scheduler_svc.links.codec.delta import build_new_request
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, run_step


@pytest.mark.parametrize("policy", ["fcfs", "fair"])
def test_tenants_have_accounts_with_every_policy(policy: str) -> None:
    """G13."""
    scheduler = make_scheduler(policy=policy)
    forms = [make_request(name, 6, has_grammar=True, tenant=name[0]) for name in ("a1", "a2", "b1")]
    for request in (*forms, make_request("c", 6, tenant="c")):
        scheduler.submit(request, 0.0)
    worker, placed = scheduler.workers[WORKER], run_step(scheduler).placed
    accounts = {request.key.request_id: build_new_request(request, worker).account for request in placed}
    assert accounts["a1"] == accounts["a2"] != accounts["b1"]
    assert 0 not in (accounts["a1"], accounts["b1"]) and accounts["c"] == 0
