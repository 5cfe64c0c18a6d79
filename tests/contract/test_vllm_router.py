"""vllm-router, as PyPI has it, drives the frontend over vllm.Inference and vllm.Control."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import httpx
import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.contract.processes import Process, ServiceRing
from tests.contract.router_contract import HEALTH_FLAGS, PROMPT, Router, RouterContract, ask
from tests.ports import free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("vllm_router") is None, reason="vllm-router is not installed: pip install -e '.[routers]'"
    ),
]


@pytest.fixture(scope="module")
def router(ring: ServiceRing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    port, metrics_port = free_ports(2)
    argv = [sys.executable, "-m", "vllm_router.launch_router", "--worker-urls", f"grpc://{ring.grpc}"]
    argv += ["--policy", "round_robin", "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--prometheus-port", str(metrics_port), "--disable-retries", *HEALTH_FLAGS]
    log = tmp_path_factory.mktemp("vllm-router") / "log"
    process = Process(argv, log, {"VLLM_ROUTER_TOKENIZER": str(DEMO_MODEL)})
    router = Router(process, f"http://127.0.0.1:{port}")
    try:
        process.wait_for(f"{router.url}/readiness")
        yield router
    finally:
        process.stop()


class TestVllmRouter(RouterContract):
    """What holds through every router, and what only this one asks."""

    def test_it_lists_the_model(self, router: Router) -> None:
        models = httpx.get(f"{router.url}/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["demo"]

    def test_what_it_is_told_of_us(self, router: Router) -> None:
        model = httpx.get(f"{router.url}/get_model_info").json()
        assert (model["model_id"], model["served_model_name"]) == (str(DEMO_MODEL), "demo")
        assert (model["supports_text_input"], model["supports_token_ids_input"]) == (True, True)
        assert (model["supports_lora"], model["supports_multimodal"]) == (False, False)
        server = httpx.get(f"{router.url}/get_server_info").json()
        assert server["engine_version"].startswith("signalbox ")
        assert (server["max_model_len"], server["kv_block_size"]) == (2048, 16)
        assert (server["parallelism"], server["total_kv_blocks"], server["max_running_requests"]) == (
            None,
            0,
            0,
        )

    def test_without_max_tokens_the_context_is_the_limit(self, router: Router) -> None:
        answer = router.chat("word " * 2030).json()
        usage = answer["usage"]
        assert answer["choices"][0]["finish_reason"] in ("stop", "length")
        assert 0 < usage["completion_tokens"] <= 2048 - usage["prompt_tokens"]

    def test_token_ids_are_completed(self, router: Router) -> None:
        answer = router.post("/v1/completions", prompt=[307, 224, 898], max_tokens=5, temperature=0).json()
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, 5)

    def test_a_visible_stop_string_stays_in_the_text(self, router: Router) -> None:
        whole = ask(router.url, max_tokens=24)[0]
        stop = whole[8:11]
        answer = router.chat(max_tokens=24, stop=[stop], no_stop_trim=True).json()["choices"][0]
        assert answer["finish_reason"] == "stop"
        assert stop in answer["message"]["content"]
        assert whole.startswith(answer["message"]["content"])

    def test_a_seed_repeats_a_sampled_answer(self, router: Router) -> None:
        first, second, other = (
            router.chat(max_tokens=16, temperature=1, seed=seed, ignore_eos=True).json()["choices"]
            for seed in (7, 7, 8)
        )
        assert first == second != other

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"truncate_prompt_tokens": 4}, "truncate_prompt_tokens is not supported"),
            ({"lora_name": "x"}, "lora_name is not supported"),
            ({"watermarking": True}, "watermarking is not supported"),
            ({"temperature": 200}, "temperature must be from 0 to 100"),
            ({"seed": -1}, "seed must be from 0"),
            ({"priority": 5000}, "priority must be from -1000 to 1000"),
            ({"model": "another"}, "'another' is not served"),
            ({"regex": "((("}, "decoding.regex cannot be followed"),
        ],
    )
    def test_a_refusal_says_why(self, router: Router, options: dict[str, Any], words: str) -> None:
        answer = router.chat(**({"max_tokens": 4} | options))
        assert answer.status_code == 400
        assert words in answer.text

    @pytest.mark.parametrize(
        "options",
        [
            {"session_params": {"session_id": "a"}},
            {"skip_special_tokens": False},
            {"watermarking": False},
            {"cache_salt": "salt"},
            {"min_tokens": 2},
            {"no_stop_trim": True},
        ],
    )
    def test_harmless_options_do_not_change_the_answer(self, router: Router, options: dict[str, Any]) -> None:
        plain = router.chat(PROMPT, max_tokens=8).json()["choices"]
        assert router.chat(PROMPT, max_tokens=8, **options).json()["choices"] == plain
