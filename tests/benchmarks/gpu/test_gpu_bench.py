"""`python -m benchmarks.gpu` as a user starts it, on a CPU: what it writes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.stage_list import NAMES

ROOT = Path(__file__).resolve().parents[3]
CASES = ("chunked, in turn", "one ahead", "cached", "preempted", "drafts", "grammar", "handed over")


def bench(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--out", str(out), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_a_run_on_a_cpu_writes_its_file(tmp_path: Path) -> None:
    """Kernels in Triton's interpreter and a stand-in for CUDA graphs, each way of serving against transformers."""
    pytest.importorskip("triton")
    out = tmp_path / "run.md"
    done = bench(out, "--device", "cpu", "--stages", "right", "--minutes", "4")
    assert done.returncode == 0, done.stdout + done.stderr + out.with_suffix(".log").read_text()
    lines = [json.loads(line) for line in out.with_suffix(".jsonl").read_text().splitlines()]
    cases = {line["case"]: line for line in lines if line["kind"] == "case"}
    assert tuple(cases) == CASES
    for name, case in cases.items():
        assert case["graphs"] == 4, "decode steps of 1, 2, 4 and 8 rows are captured"
        assert case["wrong"] == 0 and case["equal"] >= case["tokens"] - 1 > 3, name
    head, *chapters = out.read_text().split("\n## ")
    assert [f"- {title}: " in head for title in ("card", "driver", "triton", "copies, TB/s", "commit")] == [
        True
    ] * 5
    assert [chapter.splitlines()[0] for chapter in chapters] == ["right"]
    assert "| speck-qwen3 | 4 | preempted | 20 |" in chapters[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--stages", "right", "speed"], f"there is no stage 'speed': the stages are {', '.join(NAMES)}"),
        (["--model", "/nowhere"], "the model directory /nowhere does not exist, or has no config.json"),
        (["--minutes", "0"], "--minutes 0 is not above 0"),
        (["--out", "/nowhere/a.md"], "the directory of --out, /nowhere, does not exist"),
    ],
)
def test_what_cannot_begin_is_refused_in_a_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = bench(tmp_path / "run.md", "--device", "cpu", *words)
    assert (done.returncode, done.stderr) == (2, f"benchmarks.gpu: {sentence}\n")
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_the_interpreter_has_to_be_asked_for(tmp_path: Path) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("a GPU is here")
    done = bench(tmp_path / "run.md")
    assert done.returncode == 2
    assert "no CUDA device is here; --device cpu runs the interpreter" in done.stderr
