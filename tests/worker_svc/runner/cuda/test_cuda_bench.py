"""What is to be run first on a GPU, run on the CPU: the check tells right from wrong outputs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from signalbox.benchmarks.runner import cuda


@pytest.fixture
def run(
    model_dir: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[bool, list[dict[str, Any]]]]:
    monkeypatch.setattr(cuda, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(cuda, "CHECKED_PROMPTS", (1, 15, 33, 100))
    monkeypatch.setattr(cuda, "CHUNK", 40)
    options = argparse.Namespace(
        model=None,
        streams=[1, 3],
        prompt_tokens=20,
        output_tokens=12,
        dtype="float32",
        device="cpu",
        threads=1,
    )

    def call(preset: str = "tiny-qwen3") -> tuple[bool, list[dict[str, Any]]]:
        options.model = model_dir(preset)
        lines: list[dict[str, Any]] = []
        return cuda.run(options, lines.append), lines

    return call


def test_lines(run: Callable[..., tuple[bool, list[dict[str, Any]]]]) -> None:
    is_right, lines = run()
    assert is_right
    device, *rest = lines
    assert (device["device"], device["graphs"], device["batch"]) == ("cpu", 0, "PagedBatch")
    checks, times = rest[:2], rest[2:]
    for line in checks:
        assert line["wrong"] == 0
        assert line["equal"] + line["near_ties"] == line["tokens"] > 4 * cuda.CHECKED_OUTPUT
        assert line["equal"] >= line["tokens"] - 2
    assert [(line["streams"], line["steps"]) for line in times] == [
        (streams, steps) for streams in (1, 3) for steps in ("in turn", "one ahead")
    ]
    for line in times:
        assert 0 < line["fastest_ms"] <= line["step_ms"]
        assert line["floor_ms"] > 0


@pytest.mark.parametrize("preset", ["tiny-gemma3", "hybrid-qwen3-5"])
def test_windows_and_states(run: Callable[..., tuple[bool, list[dict[str, Any]]]], preset: str) -> None:
    """SG3: of states each step in flight has a version."""
    is_right, lines = run(preset)
    assert is_right
    assert [line["wrong"] for line in lines[1:3]] == [0, 0]


def test_wrong_outputs_are_found(
    run: Callable[..., tuple[bool, list[dict[str, Any]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is off by a little: the check fails."""
    from worker_svc.runner.attention.kv_cache import LayerCache  # noqa: PLC0415

    write = LayerCache.write

    def write_wrongly(
        layer: LayerCache, key: torch.Tensor, value: torch.Tensor, blocks: torch.Tensor, offsets: torch.Tensor
    ) -> None:
        write(layer, key, value * 1.2 if len(blocks) == 4 else value, blocks, offsets)

    monkeypatch.setattr(LayerCache, "write", write_wrongly)
    is_right, lines = run()
    assert not is_right
    assert lines[1]["wrong"] > 0
