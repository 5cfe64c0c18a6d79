"""Whole workloads in simulated time: what the scheduler's rules are worth, and that nothing grows."""

from __future__ import annotations

import pytest

from scheduler_svc.core.step import shortage
from signalbox.benchmarks.scheduler import plan as bench_plan
from signalbox.benchmarks.scheduler.latencies import Latencies

PRESSURE = ["--requests", "300", "--rate", "20", "--blocks", "500", "--output", "100", "500"]


def plan(*options: str) -> tuple[bench_plan.Plan, dict[str, float]]:
    """Runs a plan to its end."""
    made = bench_plan.make_plan(bench_plan.make_parser().parse_args(options))
    made.run()
    made.scheduler.check_integrity()
    return made, bench_plan.summarize(made, Latencies(None), 0.0)


@pytest.mark.slow
def test_memory_pressure_recomputes_at_most_half_of_last_come_first_preempted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V6, V3."""
    _, ours = plan(*PRESSURE)
    _, with_host_tier = plan(*PRESSURE, "--host-blocks", "2000")
    monkeypatch.setattr(shortage, "loss", bench_plan.last_come)
    _, theirs = plan(*PRESSURE, "--watermark-blocks-per-seq", "0")
    assert theirs["preemptions"] > 50, "there is no pressure"
    assert ours["recomputed_share"] <= theirs["recomputed_share"] / 2
    assert with_host_tier["recomputed_share"] <= ours["recomputed_share"] / 2
    assert ours["output_tok_s"] >= 0.98 * theirs["output_tok_s"]


def test_conversations_hit_the_blocks_of_generated_text() -> None:
    """C2."""
    _, summary = plan("--requests", "400", "--turns", "4", "--rate", "3", "--think-s", "1")
    assert summary["prefix_hit_share"] > 0.45
    _, without = plan("--requests", "100", "--turns", "4", "--rate", "3", "--no-prefix-caching")
    assert without["prefix_hit_share"] == 0


def test_a_shared_system_prompt_is_computed_once() -> None:
    _, summary = plan("--requests", "200", "--shared", "800", "--prompt", "20", "60")
    assert summary["prefix_hit_share"] > 0.9


def test_several_workers_share_the_load_and_keep_prefixes() -> None:
    made, summary = plan(
        "--requests", "400", "--turns", "4", "--rate", "6", "--workers", "3", "--think-s", "1"
    )
    steps = [worker.stats.num_output_tokens for worker in made.scheduler.workers.values()]
    assert min(steps) > 0.5 * max(steps)
    assert summary["prefix_hit_share"] > 0.4


def test_nothing_grows() -> None:
    grown: list[dict[str, int]] = []
    made = bench_plan.make_plan(
        bench_plan.make_parser().parse_args(["--requests", "1200", "--blocks", "600"])
    )
    made.on_done = lambda count: grown.append(bench_plan.sizes(made)) if count in (600, 1200) else None
    made.run()
    warm, end = grown
    assert end["unsure"] == warm["unsure"] == 0
    assert end["frontends"] == warm["frontends"]
    assert end["hashes"] <= 600
    assert end["requests"] <= 64 * 2 and end["lists"] <= 64 * 2
