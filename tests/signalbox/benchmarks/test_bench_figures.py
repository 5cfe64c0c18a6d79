"""How benches draw their load and what they make of their measurements."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import pytest

from signalbox.benchmarks.load.deliveries import parse_deliveries
from signalbox.benchmarks.load.record import Record
from signalbox.benchmarks.load.self_watch import judge
from signalbox.benchmarks.load.summary import Slo, percentile, summarize
from signalbox.benchmarks.load.worker_metrics import parse_totals
from signalbox.benchmarks.load.workload import Lengths, Workload, arrivals
from signalbox.benchmarks.serve import reference
from signalbox.benchmarks.serve.batch import decode_rate, median_of
from signalbox.benchmarks.serve.reference import Machine, Shape
from signalbox.errors import InternalError, ResourceExhaustedError

METRICS = """\
# HELP signalbox_worker_steps_total Steps run.
signalbox_worker_steps_total 30.0
signalbox_worker_step_seconds_total{part="queued"} 9.0
signalbox_worker_step_seconds_total{part="prepare"} 1.0
signalbox_worker_step_seconds_total{part="execute"} 2.5e+00
signalbox_worker_step_seconds_total{part="commit"} 0.5
"""

DELIVERIES = """\
signalbox_frontend_delivery_seconds_bucket{le="0.001"} 10.0
signalbox_frontend_delivery_seconds_bucket{le="0.002"} 90.0
signalbox_frontend_delivery_seconds_bucket{le="0.004"} 99.0
signalbox_frontend_delivery_seconds_bucket{le="+Inf"} 100.0
signalbox_frontend_delivery_seconds_sum 0.2
"""


def record(*arrivals: float, intended: float = 0.0, counts: list[int] | None = None) -> Record:
    """One that ended well with its last arrival."""
    counts = counts or [1] * len(arrivals)
    return Record(
        intended_at=intended,
        num_prompt_tokens=10,
        sent_at=intended,
        arrivals=list(arrivals),
        counts=counts,
        num_output_tokens=sum(counts),
        ended_at=arrivals[-1],
    )


def failed(code: str) -> Record:
    return Record(intended_at=0.0, num_prompt_tokens=10, error=code, ended_at=1.0)


def test_the_same_seed_gives_the_same_requests_and_no_two_are_alike() -> None:
    def plans(seed: str) -> list[tuple[tuple[int, ...], int]]:
        workload = Workload(Lengths(8, 64), Lengths(1, 9), 500, seed)
        return [(tuple(plan.prompt), plan.max_tokens) for plan in islice(workload.plans(), 200)]

    assert plans("7") == plans("7") != plans("8")
    assert len({prompt[:8] for prompt, _ in plans("7") + plans("8")}) == 400
    assert {len(prompt) for prompt, _ in plans("7")} <= set(range(8, 65))
    assert {count for _, count in plans("7")} == set(range(1, 10))
    assert max(max(prompt) for prompt, _ in plans("7")) == 499


def test_arrivals_come_at_the_rate_and_at_random() -> None:
    times = list(islice(arrivals(50.0, "1"), 10_000))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.05)
    assert variance == pytest.approx(mean**2, rel=0.1)  # what makes it a Poisson process


def test_percentiles_are_interpolated() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0], 99) == 3.0
    assert percentile([0.0, 10.0], 50) == 5.0
    assert percentile([float(n) for n in range(101)], 90) == 90.0


def test_latencies_count_from_when_a_request_was_to_be_sent() -> None:
    late = record(2.0, 2.1, 2.3, intended=1.0)
    late.sent_at = 1.9
    figures = summarize([late], (1.0, 3.0))
    assert figures["ttft_ms_p50"] == 1000.0
    assert figures["e2e_ms_p99"] == 1300.0
    assert figures["itl_ms_p50"] == 150.0
    assert figures["tpot_ms_p50"] == 150.0


def test_rates_count_what_came_inside_the_window() -> None:
    figures = summarize([record(1.0, 2.0), record(1.0, 9.0)], (0.0, 4.0))
    assert figures["requests_s"] == 0.25
    assert figures["output_tok_s"] == 0.75
    assert figures["prompt_tok_s"] == 5.0


def test_tokens_that_messages_do_not_tell_are_spread_over_them() -> None:
    told_at_the_end = record(1.0, 2.0, 3.0, 4.0)
    told_at_the_end.num_output_tokens = 8
    assert summarize([told_at_the_end], (0.0, 2.0))["output_tok_s"] == 2.0


def test_failures_are_counted_by_code_and_not_measured() -> None:
    refused = failed("")
    refused.fail(ResourceExhaustedError("too many"))
    records = [record(1.0, 2.0), refused, failed("http_500"), failed("http_500")]
    figures = summarize(records, (0.0, 2.0))
    assert (figures["requests"], figures["failed"]) == (4, 3)
    assert figures["errors"] == {"ResourceExhaustedError": 1, "http_500": 2}
    assert figures["e2e_ms_p99"] == 2000.0


@pytest.mark.parametrize(
    ("slo", "is_met"),
    [
        (Slo(ttft_ms=1000), True),
        (Slo(ttft_ms=999), False),
        (Slo(tpot_ms=200), True),
        (Slo(tpot_ms=199), False),
        (Slo(itl_ms=299), True),
        (Slo(itl_ms=290), False),
        (Slo(), True),
    ],
)
def test_goodput_counts_requests_that_keep_all_limits(slo: Slo, is_met: bool) -> None:
    kept = record(1.0, 1.1, 1.4)
    assert slo.is_met(kept) is is_met
    assert not slo.is_met(failed("http_500"))
    figures = summarize([kept, failed("x")], (0.0, 2.0), slo)
    assert (figures["goodput_requests_s"], figures["slo_share"]) == ((0.5, 0.5) if is_met else (0.0, 0.0))


def test_a_run_of_nothing_has_no_latency() -> None:
    figures = summarize([], (1.0, 1.0), Slo(ttft_ms=1))
    assert figures["ttft_ms_p50"] is figures["output_tok_s"] is figures["slo_share"] is None


def test_the_client_says_when_it_was_the_bottleneck() -> None:
    assert judge(0.5, 5.0) is None
    assert "busy 90%" in (judge(0.9, 5.0) or "")
    assert "late by 50 ms" in (judge(0.5, 50.0) or "")


def test_the_decode_rate_is_of_the_time_in_which_all_decode() -> None:
    early, late = record(1.0, 2.0, 3.0, 4.0), record(2.5, 3.0, 3.5, 6.0)
    assert decode_rate([early, late]) == round(4 / 1.5, 1)  # 3.0 and 4.0, 3.0 and 3.5
    assert decode_rate([record(1.0, 2.0), record(5.0, 6.0)]) is None


def test_medians_are_of_each_figure_by_itself() -> None:
    runs: list[dict[str, object]] = [
        {"rate": 1.0, "steps": 5, "why": None, "none": None},
        {"rate": 3.0, "steps": 7, "why": "slow", "none": None},
        {"rate": 2.0, "steps": 6, "why": None, "none": None},
    ]
    assert median_of(runs) == {"rate": 2.0, "steps": 6, "why": "slow", "none": None}


def test_a_worker_s_counters_become_shares_of_a_step() -> None:
    earlier = parse_totals(METRICS.replace("30.0", "10.0").replace("2.5e+00", "1.5"))
    figures = parse_totals(METRICS).since(earlier).figures(wall_s=2.0)
    assert (figures["steps"], figures["step_ms"], figures["step_execute_ms"]) == (20, 100.0, 50.0)
    assert figures["step_else_share"] == 0.5
    assert figures["worker_idle_share"] == 0.5
    with pytest.raises(InternalError, match="lack"):
        parse_totals("nothing 1.0\n")


def make_machine(**changes: object) -> Machine:
    fields: dict[str, object] = {
        "read_bytes_s": 1e9,
        "gemm_flop_s": 1e12,
        "num_params": 500_000_000,
        "num_head_params": 100_000_000,
        "param_bytes": 2,
        "kv_bytes_per_token": 1000,
        "is_dense": True,
    }
    return Machine(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_ceiling_is_memory_with_few_streams_and_arithmetic_with_many() -> None:
    machine = make_machine()
    assert machine.step_s(1, 0) == 1.0  # a billion bytes of weights
    assert machine.step_s(1, 1000) == 1.001
    assert machine.step_s(10_000, 0) == 10.0
    assert machine.prefill_s(1000) == 0.8
    assert machine.prefill_s(10_000) == 8.0
    figures = machine.ceiling(Shape(streams=1, prompt_tokens=1000, output_tokens=2))
    assert figures == {"output_tok_s": round(2 / (0.8 + 1.001001), 1), "decode_tok_s": 1.0}
    assert make_machine(is_dense=False).ceiling(Shape(1, 1, 1)) == {}


def test_a_comparison_leaves_out_what_is_missing() -> None:
    ours: dict[str, object] = {"output_tok_s": 30.0, "decode_tok_s": None}
    assert reference.compare(ours, {"output_tok_s": 20, "decode_tok_s": 5.0}) == {"output_tok_s_ratio": 1.5}


@pytest.mark.slow
def test_a_failed_reference_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="status 1"):
        reference.measure(tmp_path, [Shape(1, 1, 1)], dtype="float32", threads=1, repeat=1)


def test_percentiles_of_deliveries_lie_inside_their_buckets() -> None:
    deliveries = parse_deliveries(DELIVERIES)
    assert deliveries.figures() == {
        "delivery_ms_p50": 1.5,
        "delivery_ms_p90": 2.0,
        "delivery_ms_p99": 4.0,
    }
    assert deliveries.percentile_s(99.5) is None  # above all that the histogram tells apart


def test_deliveries_before_the_run_do_not_count() -> None:
    deliveries = parse_deliveries(DELIVERIES)
    assert deliveries.since(deliveries).percentile_s(50) is None
    fast = parse_deliveries(
        DELIVERIES.replace("90.0", "10.0").replace("99.0", "10.0").replace("100.0", "10.0")
    )
    assert deliveries.since(fast).percentile_s(50) == pytest.approx(0.001 + 45 / 80 * 0.001)


def test_a_page_without_deliveries_is_said() -> None:
    with pytest.raises(InternalError, match="delivery_seconds"):
        parse_deliveries("")
