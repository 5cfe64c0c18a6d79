"""The benchmark of the runner alone: it runs, and its lines hold what they promise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from signalbox.benchmarks.runner import bench


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
