"""Limits of tenants: read from a file, kept by the scheduler, changed while it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler_svc.admin.tenant_file import parse_tenants, watch_tenants
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.requests.tenants import TenantLimits, Tenants
from signalbox.benchmarks.qos.plan import Stream, make_qos_plan
from signalbox.cli.admin_client import admin_client
from signalbox.errors import InvalidRequestError, StartupError
from tests.scheduler_svc.attached import serve
from tests.scheduler_svc.harness import make_request, make_scheduler, run_step

TEXT = """
[default]
max_queued = 5
[tenants.acme]
weight = 3
tokens_per_s = 1000.5
best_priority = -1
"""


def test_toml_and_json_say_the_same() -> None:
    default, named = parse_tenants(TEXT, is_json=False)
    assert default == TenantLimits(max_queued=5)
    assert named == {"acme": TenantLimits(weight=3, tokens_per_s=1000.5, best_priority=-1)}
    raw = {"default": {"max_queued": 5}, "tenants": {"acme": {"weight": 3, "tokens_per_s": 1000.5}}}
    assert parse_tenants(json.dumps(raw), is_json=True)[1]["acme"].tokens_per_s == 1000.5


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tenants.a]\nwieght = 1", "tenants.a.wieght"),
        ("[tenants.a]\nweight = 0", "tenants.a.weight"),
        ("[tenants.a]\nmax_running = 1.5", "tenants.a.max_running"),
        ("[tenants.a]\nmax_queued = true", "tenants.a.max_queued"),
        ("[tenants.a]\nbest_priority = 'x'", "tenants.a.best_priority"),
        ("[default]\nweight = nan", "default.weight"),
        ("tenant = 1", "tenant"),
        ("tenants = 1", "tenants"),
    ],
)
def test_what_the_file_says_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_tenants(text, is_json=False)


def test_a_changed_file_is_used_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(TEXT)
    file = watch_tenants(path)
    assert not file.reload(), "it has not changed"
    path.write_text("[tenants.b]\nweight = 22.5\n")
    assert not file.reload() and file.reload(), "the second look finds it written"
    path.write_text("[tenants.b]\nweight = -1.0\n")
    assert not file.reload() and not file.reload()
    assert file.content == (TenantLimits(), {"b": TenantLimits(weight=22.5)})


@pytest.mark.parametrize(("rate", "level"), [(5.0, -15.0), (40.0, 20.0), (None, None)])
def test_what_was_spent_stays_spent_under_another_limit(rate: float | None, level: float | None) -> None:
    tenants = Tenants(named={"a": TenantLimits(tokens_per_s=20.0)})
    tenant = tenants.of("a", 0.0)
    tenant.spend(20)
    tenants.replace(TenantLimits(tokens_per_s=rate), {})
    assert (tenant.bucket and tenant.bucket.level) == level
    assert tenant.is_in_debt == (level is not None and level < 0)


def test_a_tenant_that_gets_a_limit_has_a_full_bucket() -> None:
    tenants = Tenants()
    tenant = tenants.of("a", 100.0)
    tenant.spend(1000)
    tenants.replace(TenantLimits(tokens_per_s=20.0), {})
    assert tenants.has_limits and tenant.throttled_by(100.0) is None and tenant.recovery_s() == 0
    tenant.spend(30)
    assert tenant.recovery_s() == 0.5


def test_max_running_is_kept_and_others_go_past() -> None:
    scheduler = make_scheduler(max_num_seqs=8, max_inflight_steps=1)
    scheduler.queues.set_limits(TenantLimits(), {"a": TenantLimits(max_running=1)})
    for name, tenant in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        scheduler.submit(make_request(name, 3, tenant=tenant), 0.0)
    assert {request.key.request_id for request in run_step(scheduler).placed} == {"a1", "b1", "b2"}
    scheduler.cancel(make_request("a1", 1).key, 1)
    assert [request.key.request_id for request in run_step(scheduler).placed] == ["a2"]


def test_refusals_name_the_limit() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.queues.set_limits(TenantLimits(max_queued=1), {"a": TenantLimits(best_priority=0)})
    for request in (
        make_request("too high", 3, tenant="a", priority=-1),
        make_request("first", 3, tenant="b"),
        make_request("second", 3, tenant="b"),
    ):
        scheduler.submit(request, 0.0)
    high, queued = (notice for notice in scheduler.drain_notices() if isinstance(notice, Rejected))
    assert (high.code, high.field) == ("InvalidRequestError", "priority")
    assert "'a' may ask for 0 or more (best_priority)" in high.message
    assert (queued.code, queued.retry_after_s) == ("ResourceExhaustedError", 1.0)
    assert queued.message == (
        "max_queued: 1 of 1 requests of tenant 'b' wait already, 1 of all tenants; try again in 1 s"
    )


def test_a_tenant_in_debt_of_tokens_is_told_when_to_try_again() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.queues.set_limits(TenantLimits(), {"t": TenantLimits(max_queued=1, tokens_per_s=10.0)})
    scheduler.submit(make_request("runs", 50, tenant="t"), 0.0)
    run_step(scheduler)
    scheduler.drain_notices()
    for name in ("waits", "refused"):
        scheduler.submit(make_request(name, 3, tenant="t"), 0.0)
    (refused,) = (notice for notice in scheduler.drain_notices() if isinstance(notice, Rejected))
    assert refused.retry_after_s == pytest.approx(4.1)
    assert refused.message == (
        "max_queued: 1 of 1 requests of tenant 't' wait already, for tokens_per_s: tenant 't' waits 4.1 s for "
        "tokens; try again in 5 s"
    )


def test_tokens_per_second_are_kept_in_the_long_run() -> None:
    tenants = Tenants(named={"a": TenantLimits(tokens_per_s=1000.0)})
    stream = Stream("a", (50, 150), (50, 150), backlog=20)
    plan = make_qos_plan(stream, tenants=tenants, duration_s=60.0)
    plan.run()
    inputs, outputs = plan.served()
    assert (inputs["a"] + outputs["a"]) / 60.0 == pytest.approx(1000.0, rel=0.1)


def test_a_service_does_not_start_with_a_wrong_file(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text("[tenants.a]\nweight = 'much'\n")
    with pytest.raises(StartupError, match=r"tenants.toml: tenants.a.weight: .* got 'much'"):
        watch_tenants(path)


def test_a_file_is_put_in_force_when_somebody_says_so_and_an_error_is_theirs(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(TEXT)
    file = watch_tenants(path)
    before = file.content
    for wrong, error in (
        ("[tenants.a]\nweight = 0\n", r"tenants\.a\.weight"),
        ("[tenants.a\n", "line 1"),
        (None, r"cannot read the file of tenants .*tenants\.toml: No such file"),
    ):
        path.unlink() if wrong is None else path.write_text(wrong)
        with pytest.raises(StartupError, match=error):
            file.load()
    assert file.content is before, "what was wrong changed nothing"


async def test_a_scheduler_without_a_file_says_so() -> None:
    async with serve() as (_, address), admin_client(address) as link:
        with pytest.raises(InvalidRequestError, match="--tenants FILE") as refused:
            await link.reload_tenants()
    assert refused.value.field == "tenants"
