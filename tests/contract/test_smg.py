"""smg, as PyPI has it, drives the frontend over vllm.grpc.engine.VllmEngine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import httpx
import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.contract.processes import Process, ServiceRing, until
from tests.contract.router_contract import HEALTH_FLAGS, PROMPT, Router, RouterContract
from tests.ports import free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("smg") is None, reason="smg is not installed: pip install -e '.[routers]'"),
]


@pytest.fixture(scope="module")
def router(ring: ServiceRing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    port, metrics_port = free_ports(2)
    argv = [sys.executable, "-m", "smg", "launch", "--worker-urls", f"grpc://{ring.grpc}"]
    argv += ["--policy", "round_robin", "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--prometheus-port", str(metrics_port), "--disable-retries", *HEALTH_FLAGS]
    process = Process(argv, tmp_path_factory.mktemp("smg") / "log")
    router = Router(process, f"http://127.0.0.1:{port}")
    try:
        process.wait_for(f"{router.url}/readiness")
        until(lambda: router.chat(max_tokens=1).status_code == 200, "the tokenizer is not loaded")
        yield router
    finally:
        process.stop()


def labels(router: Router) -> dict[str, str]:
    """What smg keeps of the one worker it has."""
    (worker,) = httpx.get(f"{router.url}/workers").json()["workers"]
    assert worker["runtime_type"] == "vllm"
    found: dict[str, str] = worker["labels"]
    return found


class TestSmg(RouterContract):
    """What holds through every router, and what only this one asks."""

    def test_it_lists_the_model(self, router: Router) -> None:
        models = httpx.get(f"{router.url}/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["demo"]

    def test_what_it_is_told_of_us(self, router: Router) -> None:
        told = labels(router)
        assert (told["model_path"], told["tokenizer_path"]) == (str(DEMO_MODEL), str(DEMO_MODEL))
        assert (told["served_model_name"], told["model_type"]) == ("demo", "qwen3")
        assert (told["max_context_length"], told["max_req_input_len"]) == ("2048", "2047")
        assert (told["vocab_size"], told["eos_token_ids"]) == ("4096", "[0]")
        assert (told["dp_size"], told["supports_vision"]) == ("1", "false")
        assert "max_num_seqs" not in told

    def test_text_is_completed(self, router: Router, ring: ServiceRing) -> None:
        body = {"model": "demo", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
        ours = httpx.post(f"{ring.url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]
        assert router.post("/v1/completions", **body).json()["choices"][0]["text"] == ours

    def test_choices_differ_and_are_all_there(self, router: Router) -> None:
        answer = router.chat(max_tokens=12, n=3, temperature=1, seed=3, ignore_eos=True).json()
        texts = {choice["index"]: choice["message"]["content"] for choice in answer["choices"]}
        assert sorted(texts) == [0, 1, 2]
        assert len(set(texts.values())) == 3
        assert answer["usage"]["completion_tokens"] == 36

    def test_logprobs_are_the_ones_without_the_router(self, router: Router, ring: ServiceRing) -> None:
        options: dict[str, Any] = {"max_tokens": 6, "logprobs": True, "top_logprobs": 3}
        through = router.chat(**options).json()["choices"][0]["logprobs"]["content"]
        direct = Router(router.process, ring.url).chat(**options).json()["choices"][0]["logprobs"]["content"]
        assert [item["token"] for item in through] == [item["token"] for item in direct]
        assert [len(item["top_logprobs"]) for item in through] == [3] * 6
        for theirs, ours in zip(through, direct, strict=True):
            assert theirs["logprob"] == pytest.approx(ours["logprob"], abs=1e-4)
            assert [top["token"] for top in theirs["top_logprobs"]] == [
                top["token"] for top in ours["top_logprobs"]
            ]

    def test_a_stop_token_is_named(self, router: Router) -> None:
        plain = router.chat(max_tokens=8, logprobs=True).json()["choices"][0]["logprobs"]["content"]
        ids = httpx.post(
            f"{router.url}/v1/tokenize", json={"model": "demo", "prompt": plain[4]["token"]}, timeout=10
        ).json()
        (token,) = ids["tokens"]
        answer = router.chat(max_tokens=8, stop_token_ids=[token]).json()["choices"][0]
        assert (answer["finish_reason"], answer["matched_stop"]) == ("stop", token)

    def test_the_load_is_asked_for(self, router: Router) -> None:
        def load() -> Any:
            (worker,) = httpx.get(f"{router.url}/workers").json()["workers"]
            return worker.get("engine_load")

        until(lambda: load() is not None, "smg has no load of us")
        assert load()["version"].startswith("signalbox ")
        assert load()["loads"][0]["token_usage"] == 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"seed": -1}, "sampling_params.seed must be from 0"),
            ({"regex": "((("}, "sampling_params.regex cannot be followed"),
        ],
    )
    def test_a_refusal_says_why(self, router: Router, options: dict[str, Any], words: str) -> None:
        answer = router.chat(**({"max_tokens": 4} | options))
        assert answer.status_code == 400
        assert words in answer.text
