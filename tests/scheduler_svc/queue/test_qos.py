"""What the policies promise, in simulated time; `python -m signalbox.benchmarks.qos.bench` makes the whole figures."""

from __future__ import annotations

import pytest

from scheduler_svc.core.state.policy_spec import parse_policy
from signalbox.benchmarks.qos import bench
from signalbox.benchmarks.qos.plan import Stream, make_qos_plan


@pytest.mark.sampled
@pytest.mark.parametrize("mix", sorted(bench.MIXES))
def test_two_backlogged_tenants_stay_within_the_bound_at_every_step(mix: str) -> None:
    """Q1."""
    figures = bench.run_fairness(mix, duration_s=30.0)
    assert figures["largest_difference"] <= figures["bound"]
    assert figures["largest_difference"] > 0


def test_first_come_first_served_does_not_keep_the_bound() -> None:
    """The test above can fail."""
    figures = bench.run_fairness("short against long", policy="fcfs", duration_s=30.0)
    assert figures["largest_difference"] > figures["bound"]


@pytest.mark.slow
def test_weights_of_three_to_one_are_kept_within_two_percent() -> None:
    assert bench.run_weights(3.0, duration_s=90.0)["measured"] == pytest.approx(3.0, rel=0.02)


def test_fairness_costs_no_throughput() -> None:
    figures = bench.run_throughput("short against long", num_requests=300)
    assert all(float(figures[policy]) >= 0.97 for policy in ("priority", "fair", "priority+fair"))


def test_one_tenant_alone_gets_everything() -> None:
    """Work-conserving."""
    only = Stream("a", (50, 400), (50, 300), backlog=100)
    rates = []
    for policy in ("fcfs", "fair"):
        plan = make_qos_plan(only, policy=policy, duration_s=20.0)
        plan.run()
        rates.append(len(plan.done))
    assert rates[0] == rates[1]


@pytest.mark.slow
def test_a_flood_hardly_moves_the_other_tenants_first_tokens() -> None:
    figures = bench.run_flood(duration_s=120.0)
    assert float(figures["ratio"]) < 1.2
    assert float(bench.run_flood("fcfs", duration_s=40.0)["ratio"]) > 2


@pytest.mark.slow
def test_first_tokens_of_the_high_class_at_three_times_the_capacity() -> None:
    figures = bench.run_priority(duration_s=60.0)
    assert float(figures["ratio"]) <= 1.5
    assert int(figures["displacements"]) > 0


@pytest.mark.slow
def test_the_lowest_class_starts_within_the_aging_bound_and_never_without_aging() -> None:
    figures = bench.run_aging(aging_s=4.0)
    assert int(figures["finished"]) > 10
    assert float(figures["longest_wait_s"]) <= 2 * 4.0 + 1.0
    assert figures["finished_without_aging"] == 0


@pytest.mark.slow
def test_safe_mode_keeps_first_tokens_of_the_high_class_in_time() -> None:
    off = bench.run_safe_mode(surge_s=10.0)
    on = bench.run_safe_mode(surge_s=10.0, safe_mode_ttft_ms=20.0)
    assert (off["times_set"], on["times_set"]) == (0, 1)
    assert float(on["late"]) < float(off["late"]) / 2


@pytest.mark.parametrize("text", ["", "fifo", "fair+fair", "fcfs+fair", "priority,fair"])
def test_a_policy_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="policy"):
        parse_policy(text)
