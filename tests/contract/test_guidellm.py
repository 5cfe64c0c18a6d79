"""guidellm, as PyPI has it, measures the frontend over the OpenAI-compatible API."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.contract.processes import Process, ServiceRing
from tests.pairs import in_soak

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("guidellm") is None, reason="guidellm is not installed: pip install -e '.[guidellm]'"
    ),
]

NUM_REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS = 6, 20, 5
RUN_TIMEOUT_S = 90


def measure(url: str, request_format: str, folder: Path) -> dict[str, Any]:
    """What guidellm reports of its one benchmark: six requests, two at a time."""
    report = folder / "report.json"
    argv = [sys.executable, "-m", "guidellm", "run"]
    argv += ["--backend", f"kind=openai_http,target={url},request_format={request_format}"]
    argv += ["--profile", "kind=concurrent,streams=2"]
    argv += ["--constraint", f"kind=max_requests,count={NUM_REQUESTS}"]
    argv += ["--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}"]
    argv += ["--tokenizer", f"kind=hf_auto,model={DEMO_MODEL}"]
    argv += ["--output", f"kind=json,path={report}", "--disable-console-interactive"]
    process = Process(argv, folder / "log", {"HF_HUB_OFFLINE": "1"})
    try:
        assert process.wait(RUN_TIMEOUT_S) == 0, process.log
    finally:
        process.stop()
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    return dict(benchmark)


@pytest.mark.sampled
@pytest.mark.parametrize("request_format", ["/v1/chat/completions", *in_soak("/v1/completions")])
def test_it_measures_what_it_asked_for(ring: ServiceRing, tmp_path: Path, request_format: str) -> None:
    before = ring.ended("length")
    benchmark = measure(ring.url, request_format, tmp_path)
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"], totals["incomplete"]) == (NUM_REQUESTS, 0, 0)
    assert ring.ended("length") == before + NUM_REQUESTS
    for request in benchmark["requests"]["successful"]:
        assert (request["prompt_tokens"], request["output_tokens"]) == (PROMPT_TOKENS, OUTPUT_TOKENS)
        assert 0 < request["time_to_first_token_ms"] < request["request_latency"] * 1e3
        assert request["output"]
