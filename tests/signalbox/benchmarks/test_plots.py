"""Figures from lines of benches: read back from the SVG that was written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'signalbox[plots]'")

from signalbox.benchmarks.plots import KINDS, check_plot, draw
from signalbox.benchmarks.plots.__main__ import read
from signalbox.benchmarks.plots.frame import panels
from signalbox.benchmarks.plots.peers import SCHEDULERS
from signalbox.errors import InvalidRequestError

DOCS = Path(__file__).resolve().parents[3] / "docs"
FIGURE = re.compile(r"\]\(figures/([\w-]+)\.svg\)")

LOADS = [
    {"rate": rate, "output_tok_s": 100.0 * rate, "prompt_tok_s": 50.0 * rate}
    | {f"{kind}_ms_p{p}": rate * p for kind in ("ttft", "itl") for p in (50, 90, 99)}
    for rate in (2.0, 4.0, 8.0)
]
STEPS = [
    {"running": running, "speculative": drafts, "total_us_p50": 40.0}
    | {f"{part}_us_p50": 10.0 for part in ("schedule", "update", "parse", "encode")}
    for drafts in (0, 4)
    for running in (64, 1024)
]
QOS = [
    {"experiment": "fairness", "mix": mix, "policy": policy, "largest_difference": 50, "bound": 100}
    for mix in ("alike", "short against long")
    for policy in ("fcfs", "fair")
] + [{"experiment": "weights", "weight": 3, "measured": 3.0}]


def draw_svg(kind: str, lines: list[dict[str, Any]], folder: Path) -> str:
    path = folder / f"{kind}.svg"
    draw(kind, lines, path)
    return path.read_text()


def has_text(svg: str, text: str) -> bool:
    """matplotlib draws letters as paths, and writes the text beside them as a comment."""
    return f"<!-- {text} -->" in svg


def test_latencies_stand_against_the_load(tmp_path: Path) -> None:
    svg = draw_svg("load", LOADS, tmp_path)
    for text in ("time to first token, ms", "inter-token, ms", "p99", "requests per second asked for", "8"):
        assert has_text(svg, text), text


def test_closed_loops_stand_against_streams(tmp_path: Path) -> None:
    lines = [{"streams": int(line["rate"])} | line | {"rate": None} for line in LOADS]
    assert has_text(draw_svg("load", lines, tmp_path), "requests at one time")


def test_each_system_is_a_line_of_the_serving_figure(tmp_path: Path) -> None:
    ours = [{"streams": int(line["rate"]), "system": "signalbox"} | line for line in LOADS]
    other = [{"streams": 2, "system": "transformers", "output_tok_s": 10.0}]
    svg = draw_svg("serve", ours + other, tmp_path)
    assert has_text(svg, "signalbox")
    assert has_text(svg, "transformers")


def test_the_scheduler_stands_beside_peers_with_as_many_drafts(tmp_path: Path) -> None:
    svg = draw_svg("scheduler", STEPS, tmp_path)
    assert has_text(svg, "vLLM 0.32")
    assert has_text(svg, "vLLM 0.32, asynchronous, 4 drafts")
    svg = draw_svg("scheduler", STEPS[:2], tmp_path)
    assert not has_text(svg, "vLLM 0.32, asynchronous, 4 drafts")


def test_peers_are_as_the_document_says() -> None:
    """One truth: the table of docs/performance.md."""
    text = (DOCS / "performance.md").read_text()
    for peer in SCHEDULERS:
        for us in peer.total_us.values():
            assert f"{us:,.0f}" in text, (peer.name, us)


def test_experiments_without_a_panel_are_left_out_of_the_quality_figure(tmp_path: Path) -> None:
    svg = draw_svg("qos", QOS, tmp_path)
    assert has_text(svg, "largest difference of service, of the bound")
    assert has_text(svg, "the bound")


def test_first_tokens_in_time_stand_against_the_load(tmp_path: Path) -> None:
    lines = [
        {"experiment": "deadline", "policy": policy, "overload": overload, "in_time": 1 / overload}
        for policy in ("fcfs", "deadline")
        for overload in (1.0, 1.5, 2.0)
    ]
    svg = draw_svg("qos", lines, tmp_path)
    assert has_text(svg, "first tokens in time, share")
    assert has_text(svg, "fcfs") and has_text(svg, "deadline")


def test_many_panels_stand_two_by_two(tmp_path: Path) -> None:
    sizes = {}
    for count in (3, 4, 5):
        path = tmp_path / f"{count}.png"
        with panels(count, path) as axes:
            assert len(axes) == count
        sizes[count] = tuple(int.from_bytes(path.read_bytes()[at : at + 4]) for at in (16, 20))
    (wide, low), (narrow, high), (same, higher) = sizes.values()
    assert narrow == same < wide
    assert (high, higher) == (2 * low, 3 * low)


def test_figures_of_the_documents_are_drawn_from_their_data(tmp_path: Path) -> None:
    """`make figures` draws docs/figures/NAME.svg from docs/data/NAME.jsonl."""
    shown = {name for text in DOCS.glob("*.md") for name in FIGURE.findall(text.read_text())}
    assert shown == {path.stem for path in (DOCS / "figures").glob("*")}
    data = {path.stem for path in (DOCS / "data").glob("*.jsonl")}
    assert shown == {name for name in data if name.partition("-")[0] in KINDS}
    for name in shown:
        draw(name.partition("-")[0], read(DOCS / "data" / f"{name}.jsonl"), tmp_path / f"{name}.svg")


def test_the_same_lines_make_the_same_file(tmp_path: Path) -> None:
    assert draw_svg("load", LOADS, tmp_path) == draw_svg("load", LOADS, tmp_path)


@pytest.mark.parametrize("kind", ["load", "serve", "scheduler", "qos"])
def test_lines_of_another_bench_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="none of the 1 lines"):
        draw(kind, [{"something": 1}], tmp_path / "out.svg")


def test_a_figure_that_could_not_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"\.svg, \.png or \.pdf"):
        check_plot(tmp_path / "out.txt")
    with pytest.raises(InvalidRequestError, match="directory"):
        check_plot(tmp_path / "missing" / "out.svg")
    check_plot(None)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_scheduler_bench_draws_what_it_prints(tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    done = run("signalbox", "bench", "scheduler", "--running", "8", "--steps", "20", "--plot", str(out))
    assert done.returncode == 0, done.stderr
    assert out.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "lines.jsonl").write_text(done.stdout)
    done = run(
        "signalbox.benchmarks.plots", "scheduler", str(tmp_path / "again.pdf"), str(tmp_path / "lines.jsonl")
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("bench", [("load", "http://127.0.0.1:1"), ("serve",), ("scheduler",)])
def test_benches_refuse_a_wrong_file_at_once(bench: tuple[str, ...]) -> None:
    done = run("signalbox", "bench", *bench, "--plot", "out.txt")
    assert done.returncode != 0
    assert "out.txt has to end with" in done.stderr


def test_notes_among_the_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps(STEPS[0]) + "\nnot json\n")
    done = run("signalbox.benchmarks.plots", "scheduler", str(tmp_path / "out.svg"), str(path))
    assert done.returncode == 1
    assert "line 2: not a JSON object" in done.stderr
