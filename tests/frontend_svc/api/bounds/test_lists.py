"""Bodies whose lists would cost far more than their bytes (AK4)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frontend_svc.api.anthropic.body import MessagesBody
from frontend_svc.api.http.body import MAX_ERRORS, parse_body
from frontend_svc.api.openai.bounded_lists import MAX_ENTRIES
from frontend_svc.api.openai.chat_body import ChatBody
from frontend_svc.api.openai.completion_body import CompletionBody
from frontend_svc.api.openai.embeddings import EmbeddingsBody
from frontend_svc.api.openai.schema import Body
from frontend_svc.api.pooling.rerank import RerankBody
from frontend_svc.api.responses.body import ResponsesBody
from signalbox.errors import InvalidRequestError
from tests.frontend_svc.guarded import KeyRing, Start, http_of

MANY = MAX_ENTRIES + 1
USER: dict[str, Any] = {"role": "user"}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (CompletionBody, {"prompt": ["a"] * MANY}),
        (CompletionBody, {"prompt": [[]] * MANY}),
        (EmbeddingsBody, {"input": ["a"] * MANY}),
        (RerankBody, {"query": "a", "documents": ["a"] * MANY}),
        (ChatBody, {"messages": [{}] * MANY}),
        (ChatBody, {"messages": [USER | {"content": [{}] * MANY}]}),
        (ChatBody, {"messages": [USER | {"content": "a"}], "tools": [{}] * MANY}),
        (ResponsesBody, {"input": [{}] * MANY}),
        (MessagesBody, {"max_tokens": 1, "messages": [USER | {"content": [{}] * MANY}]}),
        (CompletionBody, {"prompt": [1, *[""] * MANY]}),
        (CompletionBody, {"prompt": ["", *[1] * 1000]}),
    ],
    ids=[
        "prompts", "empty prompts", "inputs", "documents", "messages", "parts", "tools", "items", "Anthropic's parts",
        "wrong tokens", "wrong texts",
    ],
)  # fmt: skip
def test_the_check_of_a_list_ends_at_its_bound(body: type[Body], value: dict[str, Any]) -> None:
    """Before, each entry was made into something, or into an error: 50 s and 8 GB for 8 MiB."""
    with pytest.raises(ValidationError) as refused:
        body.model_validate(value)
    assert refused.value.error_count() <= 2


def test_tokens_have_the_bound_of_their_model() -> None:
    assert len(CompletionBody.model_validate({"prompt": [1] * 4 * MANY}).prompt) == 4 * MANY


@pytest.mark.parametrize("field", [b'"metadata":{%b}', b"%b"])
def test_errors_without_end_are_counted_and_not_listed(field: bytes) -> None:
    names = b",".join(b'"%d":1' % number for number in range(MAX_ERRORS + 1))
    with pytest.raises(InvalidRequestError, match=f"the body has {MAX_ERRORS + 1} errors"):
        parse_body(b'{"prompt":"a",' + field % names + b"}", CompletionBody)


async def test_a_list_of_prompts_is_refused_by_its_number(start: Start, ring: KeyRing) -> None:
    guarded = await start(max_request_bytes=8 << 20)
    async with http_of(guarded) as http:
        answer = await http.post(
            "/v1/completions", json={"prompt": ["a"] * 400_000}, headers=ring.headers("acme")
        )
    assert answer.status_code == 400
    assert f"at most {MAX_ENTRIES}" in answer.json()["error"]["message"]


async def test_a_key_without_room_is_told_so_ahead_of_its_body(start: Start, ring: KeyRing) -> None:
    """Before, a key that had used up its requests could have bodies read without end."""
    ring.add("acme", requests_per_minute=1)
    guarded = await start()
    async with http_of(guarded) as http:
        for status in (200, 429):
            answer = await http.post(
                "/tokenize", json={"prompt": "the"}, headers=ring.headers("acme"), timeout=10
            )
            assert answer.status_code == status
        headers = ring.headers("acme") | {"content-type": "application/json"}
        answer = await http.post("/v1/completions", content=b"no JSON", headers=headers)
    assert answer.status_code == 429
