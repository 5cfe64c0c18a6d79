"""What the API says of itself holds before a whole ring with the demo model."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.conftest import RunningRing, StartRing


@pytest.fixture
def http(start_ring: StartRing) -> httpx.Client:
    ring: RunningRing = start_ring()
    return httpx.Client(base_url=ring.url, timeout=60)


def test_examples_are_served(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    served = []
    for path, operations in paths.items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if method == "get" and "{" not in path and not path.startswith("/board"):
                assert http.get(path).status_code == 200, path
            if content is not None:
                answer = http.post(path, json=content["example"])
                # A model without a head refuses what needs one, by its name.
                assert answer.status_code == 200 or "does not serve" in answer.text, (path, answer.text)
                served += [path] if answer.status_code == 200 else []
    assert len(served) >= 8


@pytest.mark.parametrize("temperature", [0, 1])
def test_only_allowed_tokens_come(http: httpx.Client, temperature: float) -> None:
    """D5: by the native kernel, with a form and without."""
    tokenize = {"prompt": "abc \n", "add_special_tokens": False}
    letters = [http.post("/tokenize", json=tokenize | {"prompt": each}).json()["tokens"] for each in "abcxyz"]
    allowed = [ids[0] for ids in letters if len(ids) == 1]
    assert len(allowed) >= 3
    body: dict[str, Any] = {"prompt": "def f(", "max_tokens": 24, "temperature": temperature, "seed": 5}
    body |= {"allowed_token_ids": allowed, "return_token_ids": True, "logprobs": 1}
    (choice,) = http.post("/v1/completions", json=body | {"logprob_token_ids": allowed}).json()["choices"]
    assert set(choice["token_ids"]) <= set(allowed) and len(choice["token_ids"]) == 24
    assert all(len(top) >= len(allowed) for top in choice["logprobs"]["top_logprobs"])
    form = {"structured_outputs": {"regex": "(a|b|q){8}"}, "allowed_token_ids": allowed}
    eos = http.post("/v1/completions", json=body | form | {"max_tokens": 8}).json()["choices"][0]
    assert set(eos["token_ids"]) <= set(allowed) and set(eos["text"]) <= set("ab")
