"""Stages in processes of their own: one that hangs, dies or fails costs the others nothing but its time."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu.order import Order
from benchmarks.gpu.report import markdown
from benchmarks.gpu.results import Results
from benchmarks.gpu.running import Run
from benchmarks.gpu.stage_list import STAGES, Stage, ends_of, stage_of

ROOT = Path(__file__).resolve().parents[3]


def stage(name: str, module: str, share: float = 10.0, group: str = "one") -> Stage:
    return replace(stage_of(name), module=f"tests.benchmarks.gpu.staged.{module}", share=share, group=group)


def run(tmp_path: Path, *stages: Stage, seconds: float = 60.0) -> tuple[Results, list[str]]:
    """The results, and the stages in the order of their ends."""
    results, ended = Results(tmp_path / "run.jsonl"), list[str]()
    results.begin()
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    Run(Order("cpu", tmp_path), results, tmp_path / "run.log", env, ended.append).run(stages, seconds)
    return results, ended


def test_stages_of_a_group_share_a_process(tmp_path: Path) -> None:
    results, ended = run(
        tmp_path, stage("memory", "writes"), stage("decode", "writes"), stage("ring", "writes", group="two")
    )
    assert ended == ["memory", "decode", "ring"]
    said = {name: lines[0]["stages"] for name, lines in results.lines.items()}
    assert said == {"memory": 1, "decode": 2, "ring": 1}
    assert results.failed == []
    raw = [json.loads(line) for line in results.raw.read_text().splitlines()]
    assert [(line["stage"], line["kind"]) for line in raw[:2]] == [("memory", "said"), ("memory", "end")]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("dies", "its process was ended by SIGABRT; an illegal memory access"),
        ("raises", "ValueError: no such kernel"),
        ("missing", "ModuleNotFoundError: No module named 'tests.benchmarks.gpu.staged.missing'"),
    ],
)
def test_after_a_stage_that_fails_the_others_have_a_new_process(
    tmp_path: Path, module: str, words: str
) -> None:
    results, _ = run(tmp_path, stage("memory", "writes"), stage("decode", module), stage("mixed", "writes"))
    assert results.failed == ["decode"]
    assert results.outcomes["decode"].failures[0].startswith(words)
    assert results.lines["mixed"] == [{"kind": "said", "stages": 1}]


def test_a_stage_that_failed_and_came_to_its_end_shares_its_process(tmp_path: Path) -> None:
    """What it has loaded is sound, and loading takes long."""
    results, _ = run(tmp_path, stage("memory", "complains"), stage("decode", "writes"))
    assert results.outcomes["memory"].failures == ["a figure is not what it should be"]
    assert results.lines["decode"] == [{"kind": "said", "stages": 2}]


def test_a_stage_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    """What it has said stays; the time of the others is theirs."""
    results, _ = run(
        tmp_path, stage("memory", "hangs", share=5), stage("decode", "writes", share=55), seconds=60
    )
    assert results.failed == ["memory"]
    assert results.outcomes["memory"].failures[0].startswith("its time was up, and its process was ended")
    assert 4 < results.outcomes["memory"].seconds < 30
    child = results.lines["memory"][0]["pid"]
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert results.lines["decode"] == [{"kind": "said", "stages": 1}]


def test_stages_that_have_no_time_left_are_told(tmp_path: Path) -> None:
    results, ended = run(tmp_path, stage("memory", "writes"), stage("decode", "writes"), seconds=0.5)
    assert ended == ["memory", "decode"]
    assert results.outcomes["decode"].failures == ["it was not run: the time of the run is used up"]


def test_what_a_stage_leaves_of_its_time_the_next_ones_have() -> None:
    ends = ends_of(STAGES, 420.0)
    assert list(ends) == [each.name for each in STAGES]
    assert list(ends.values()) == sorted(ends.values())
    assert ends["ring"] == pytest.approx(420.0)


def test_a_report_of_a_failed_stage_says_why_and_has_its_tables(tmp_path: Path) -> None:
    results = Results(tmp_path / "run.jsonl")
    results.begin()
    results.add("machine", {"kind": "machine", "card": "H100", "copy_tb_s": 2.9, "commit": "abc"})
    results.add("decode", {"kind": "decode", "rows": 64, "step_ms": 8.86, "tok_s": 7221})
    results.add("decode", {"kind": "decode", "rows": 256, "note": "no room | for it"})
    results.end("decode", ["the device\nis lost"], 3.0)
    text = markdown(results, [stage_of("decode"), stage_of("ring")], "python -m benchmarks.gpu")
    assert "- card: H100\n" in text and "- driver: -\n" in text
    assert "**Failed** after 3 s:\n\n- the device is lost\n" in text
    assert "| 64 | 8.86 | 7,221 | - |" in text
    assert "| 256 | - | - | no room \\| for it |" in text
    assert text.endswith("## ring\n\nNot ended.\n")
