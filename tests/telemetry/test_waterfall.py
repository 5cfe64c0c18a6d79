"""`signalbox trace`: the spans that services have written, as a waterfall in the terminal and as SVG."""

from __future__ import annotations

import time
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from signalbox.cli.main import main
from signalbox.cli.waterfall import BAR_COLUMNS, to_svg, to_text
from signalbox.telemetry import span_file, spans
from signalbox.telemetry.span_file import FileSink, RecordedSpan, read_spans
from signalbox.telemetry.trace_context import TraceContext
from tests.telemetry.conftest import LaunchTraced, environment

SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000
SPANS = [
    RecordedSpan("frontend", "chat <m>", "a" * 32, "1", 0, 100 * MS, {}, [("first_token", 50 * MS, {})], []),
    RecordedSpan("worker", "decode", "a" * 32, "2", 50 * MS, 100 * MS, {}, [], [], "it & failed"),
]


def test_bars_stand_where_their_spans_were() -> None:
    whole, event, half = to_text(SPANS).splitlines()
    assert whole.count("█") == BAR_COLUMNS
    assert event.split() == ["50.00", "ms", "first_token"]
    bar = half.split("|")[1]
    assert bar == " " * (BAR_COLUMNS // 2) + "█" * (BAR_COLUMNS // 2)
    assert half.endswith("50.00 ms  it & failed")


def test_the_picture_has_the_same_bars() -> None:
    _, whole, half = ElementTree.fromstring(to_svg(SPANS)).iter(f"{SVG}rect")
    left, width = float(whole.attrib["x"]), float(whole.attrib["width"])
    assert float(half.attrib["x"]) == pytest.approx(left + width / 2, abs=0.1)
    assert float(half.attrib["width"]) == pytest.approx(width / 2, abs=0.1)


@pytest.fixture(scope="module")
def spans_dir(launch_traced: LaunchTraced) -> Path:
    """Where a ring has written the spans of the request `mine`."""
    ring = launch_traced("", "--trace")
    body = {"model": "demo", "prompt": [1, 2, 3], "max_tokens": 5, "ignore_eos": True}
    answer = httpx.post(f"{ring.url}/v1/completions", json=body, headers={"x-request-id": "mine"}, timeout=20)
    assert answer.status_code == 200
    assert ring.stop() == 0
    return ring.log_dir


def test_all_services_are_in_it(spans_dir: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["trace", "mine", "--dir", str(spans_dir)]) == 0
    told = capsys.readouterr().out
    rows = [tuple(line.split()[:2]) for line in told.splitlines() if "|" in line]
    assert rows == [
        *(
            ("frontend", "text_completion"),
            ("scheduler", "queue"),
            ("worker", "prefill"),
            ("worker", "decode"),
        )
    ]
    assert "placed worker.id=worker-0 step_id=" in told and "num_free_blocks=" in told
    picture = tmp_path / "trace.svg"
    assert main(["trace", "mine", "--dir", str(spans_dir), "--svg", str(picture)]) == 0
    assert len(list(ElementTree.parse(picture).iter(f"{SVG}rect"))) == 1 + len(rows)


def test_a_request_that_nobody_knows_is_a_sentence(
    spans_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "another", "--dir", str(spans_dir)]) == 1
    assert "is of another" in capsys.readouterr().err


def test_a_file_ends_at_its_bound_and_a_part_of_a_line_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_file, "MAX_BYTES", 500)
    with environment(SIGNALBOX_TRACE_DIR=str(tmp_path)):
        tracer = spans.start("test", "0")
    for number in range(100):
        span = tracer.start(f"span {number}", "", "", time.monotonic(), is_entry=True)
        assert span is not None
        span.end(time.monotonic())
    tracer.stop()
    found = read_spans(tmp_path)
    assert [span.name for span in found] == [f"span {number}" for number in range(len(found))]
    assert 0 < len(found) < 5
    assert (tracer.counts.num_exported, tracer.counts.num_dropped) == (len(found), 100 - len(found))
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text() + '{"service": "te')
    assert read_spans(tmp_path) == found


def test_what_a_client_does_not_want_traced_is_not(tmp_path: Path) -> None:
    sink = FileSink("test", tmp_path)
    assert sink.sample(TraceContext(1, 2, False), 1, "x", True) is None
    assert sink.sample(TraceContext(1, 2, True, "k=v"), 1, "x", True) == "k=v"
    sink.close(1)
