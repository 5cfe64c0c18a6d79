"""What has to hold through any router of another project that drives the frontend over gRPC."""

from __future__ import annotations

import re
from typing import Any

import httpx
import openai
import pytest

from tests.contract.processes import Process, ServiceRing, status_of, until

PROMPT = "def quicksort("
HEALTH_FLAGS = (
    "--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1",
    "--worker-startup-check-interval", "1",
)  # fmt: skip
"""Of both routers, so that they see within a second or two that a worker went."""


class Router:
    """A running router."""

    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.url = url

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Whatever it answers."""
        return httpx.post(f"{self.url}{path}", json={"model": "demo"} | body, timeout=60)

    def chat(self, content: str = PROMPT, **options: Any) -> httpx.Response:
        """POST /v1/chat/completions, greedy."""
        messages = [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", **({"messages": messages, "temperature": 0} | options))


def ask(url: str, **options: Any) -> tuple[str, str | None, int, int]:
    """Text, finish reason, prompt and output tokens of a greedy chat completion."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
    messages: Any = [{"role": "user", "content": PROMPT}]
    answer = client.chat.completions.create(model="demo", messages=messages, temperature=0, **options)
    assert answer.usage is not None
    (choice,) = answer.choices
    usage = answer.usage
    return choice.message.content or "", choice.finish_reason, usage.prompt_tokens, usage.completion_tokens


class RouterContract:
    """Tests; the class of each router has a fixture `router`."""

    def test_the_answer_is_the_one_without_the_router(self, router: Router, ring: ServiceRing) -> None:
        answer = ask(router.url, max_tokens=24)
        assert answer == ask(ring.url, max_tokens=24)
        assert answer[0]

    def test_max_tokens(self, router: Router) -> None:
        _, reason, _, num_output_tokens = ask(router.url, max_tokens=7)
        assert (reason, num_output_tokens) == ("length", 7)

    def test_a_stream_is_the_same_text_piece_by_piece(self, router: Router) -> None:
        text, reason, num_prompt_tokens, num_output_tokens = ask(router.url, max_tokens=96)
        client = openai.OpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0, timeout=60)
        chunks = list(
            client.chat.completions.create(
                model="demo",
                messages=[{"role": "user", "content": PROMPT}],
                max_tokens=96,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(pieces) == text
        assert sum(map(bool, pieces)) > 8  # a busy machine joins tokens
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        assert [item for item in reasons if item] == [reason]
        usage = chunks[-1].usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (num_prompt_tokens, num_output_tokens)

    def test_a_stop_string_ends_the_text(self, router: Router) -> None:
        whole, _, _, num_whole = ask(router.url, max_tokens=24)
        stop = whole[8:11]
        text, reason, _, num_output_tokens = ask(router.url, max_tokens=24, stop=[stop])
        assert (text, reason) == (whole[: whole.index(stop)], "stop")
        assert num_output_tokens < num_whole

    def test_a_regular_expression_is_followed(self, router: Router) -> None:
        choice = router.chat(max_tokens=30, regex="[ab]{5}", temperature=1).json()["choices"][0]
        assert re.fullmatch("[ab]{5}", choice["message"]["content"])
        assert choice["finish_reason"] == "stop"

    def test_a_client_that_leaves_cancels_its_request(self, router: Router, ring: ServiceRing) -> None:
        cancelled = ring.ended("CancelledError")
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": 1900,
            "stream": True,
            "ignore_eos": True,
        }
        with httpx.stream("POST", f"{router.url}/v1/chat/completions", json=body, timeout=60) as response:
            assert response.status_code == 200, response.read()
            lines = response.iter_lines()  # kept: the response is closed with it
            next(lines)
            until(lambda: ring.num_running() == 1, "the request is not on the worker")
        until(lambda: ring.ended("CancelledError") == cancelled + 1, "the request was not cancelled")
        until(lambda: ring.num_running() == 0, "the request is still on the worker")

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_prompt_that_is_too_long_is_the_clients_error(self, router: Router, stream: bool) -> None:
        answer = router.chat("word " * 5000, max_tokens=4, stream=stream)
        assert answer.status_code == 400
        assert "5001" in answer.text
        assert "2048" in answer.text

    def test_the_router_knows_when_the_worker_is_gone(self, router: Router, ring: ServiceRing) -> None:
        assert status_of(f"{router.url}/readiness") == 200
        ring.stop_worker()
        try:
            until(lambda: status_of(f"{router.url}/readiness") == 503, "the router is still ready")
            assert router.chat(max_tokens=4).status_code == 503
        finally:
            ring.start_worker()
        until(lambda: status_of(f"{router.url}/readiness") == 200, "the router is not ready again")
        assert router.chat(max_tokens=4).status_code == 200
