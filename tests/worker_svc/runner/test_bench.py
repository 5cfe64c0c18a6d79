"""The benchmark of the runner alone: it runs, and its lines hold what they promise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from signalbox.benchmarks.runner import bench, read_share


def test_lines(
    model_dir: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--streams 1 3 --prompt-tokens 20 --output-tokens 12 --threads 1 --transformers --json"
    monkeypatch.setattr(bench, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(
        sys,
        "argv",
        ["bench", "--model", str(model_dir("tiny-qwen3")), "--dtype", "float32", *options.split()],
    )
    bench.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["system"], line["streams"]) for line in lines] == [
        (system, streams) for streams in (1, 3) for system in ("signalbox", "transformers")
    ]
    for line in lines:
        assert line["output_tok_s"] > 0
        assert line["decode_tok_s"] > 0
    for line in lines[::2]:
        assert line["floor_ms"] > 0
        assert set(line["split_ms"]) == {"linears", "attention", "sampling", "rest"}
        assert min(line["split_ms"].values()) > 0


def test_the_share_of_a_plain_read(
    model_dir: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--dtype float32 --quantization none --threads 1 --rounds 3 --steps 4"
    monkeypatch.setattr(
        sys, "argv", ["read_share", "--model", str(model_dir("tiny-qwen3")), *options.split()]
    )
    read_share.main()
    line = json.loads(capsys.readouterr().out)
    assert line["threads"] == 1 and line["step_ms"] > 0 and line["read_gb_s"] > 0
    low, high = line["ratios"]
    assert 0 <= low <= line["ratio"] <= high
