"""Reranking, scores, labels and raw results: over real sockets, against a scripted cluster whose worker scores a
prompt by its length."""

from __future__ import annotations

import asyncio
import base64
from array import array
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from frontend_svc.server import Frontend
from signalbox.v1 import generation_pb2 as generation
from signalbox.v1 import to_frontend_pb2
from tests.frontend_svc.helpers import STOP, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

Result = Callable[[Any, list[int]], list[float]]


def by_length(params: Any, tokens: list[int]) -> list[float]:
    """What a head, or an embedding of length 1, could be."""
    if params.task in (generation.MODEL_TASK_TOKEN_EMBED, generation.MODEL_TASK_TOKEN_CLASSIFY):
        return [float(number) for token in tokens for number in (token, 0.5)]
    if params.task == generation.MODEL_TASK_EMBED:
        return [1.0, 0.0] if len(tokens) % 2 else [0.6, 0.8]
    return [float(len(tokens))] if params.task == generation.MODEL_TASK_SCORE else [0.25, 0.75]


def serve(cluster: Cluster, result: Result = by_length) -> list[Any]:
    """Answers every pooling request. Returns the payloads, as they come."""
    payloads = []

    def answer(operation: Any) -> None:
        if operation.WhichOneof("operation") == "submit":
            submit = operation.submit
            assert submit.meta.kind == generation.REQUEST_KIND_POOLING
            payload = generation.RequestPayload.FromString(submit.payload)
            payloads.append(payload)
            cluster.scheduler.place(submit.ref)
            vector = array("f", result(payload.pooling, array("i", payload.token_ids).tolist())).tobytes()
            cluster.worker.emit(Row(submit.ref.attempt, 0, [], STOP, vector=vector))

    cluster.scheduler.on_operation = answer
    return payloads


async def set_tasks(cluster: Cluster, frontend: Frontend, *tasks: int) -> None:
    """The worker says what it serves."""
    cluster.model.tasks[:] = tasks  # type: ignore[assignment]
    directory = to_frontend_pb2.WorkerDirectory(workers=[cluster.entry()])
    cluster.scheduler.send(workers=directory)
    await until(lambda: [int(task) for task in frontend.directory.models[0].tasks] == sorted(tasks))


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
async def test_rerank(http: httpx.AsyncClient, cluster: Cluster, path: str) -> None:
    """LM13: the best first, with their places; usage counts the tokens that were read."""
    payloads = serve(cluster)
    body = {"model": "toy", "query": "a", "documents": ["b", {"text": "bcdef"}, "bcd"], "top_n": 2}
    answer = (await http.post(path, json=body)).json()
    assert [(each["index"], each["document"]["text"]) for each in answer["results"]] == [
        (1, "bcdef"),
        (2, "bcd"),
    ]
    assert answer["results"][0]["relevance_score"] == len(payloads[1].token_ids) / 4
    assert answer["usage"]["total_tokens"] == sum(len(payload.token_ids) // 4 for payload in payloads)
    assert {payload.pooling.task for payload in payloads} == {generation.MODEL_TASK_SCORE}
    assert answer["model"] == "toy" and answer["id"]
    plain = (await http.post(path, json=body | {"return_documents": False, "top_n": 0})).json()
    assert [set(each) for each in plain["results"]] == [{"index", "relevance_score"}] * 3


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
async def test_score(http: httpx.AsyncClient, cluster: Cluster, path: str) -> None:
    serve(cluster)
    for body, count in (
        ({"text_1": "a", "text_2": "b"}, 1),
        ({"text_1": "a", "text_2": ["b", "bc"]}, 2),
        ({"queries": ["a", "b"], "documents": ["c", "d"]}, 2),
        ({"data_1": ["a"], "data_2": ["c", "d", "e"], "use_activation": False}, 3),
    ):
        answer = await http.post(path, json=body)
        data = answer.json()["data"]
        assert [(each["index"], each["object"]) for each in data] == [(n, "score") for n in range(count)]
    for body, param in (
        ({"text_1": ["a", "b"], "text_2": ["c"]}, "text_1"),
        ({"text_1": "a"}, "text_2"),
        ({"text_1": "a", "queries": "a", "text_2": "b"}, "text_1"),
        ({"text_1": "a", "text_2": []}, "text_2"),
        ({"text_1": "a", "text_2": "b", "instruction": "x"}, "instruction"),
    ):
        answer = await http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_a_model_of_vectors_scores_by_their_angle(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend
) -> None:
    """Each text is read once, however many pairs it is in."""
    payloads = serve(cluster)
    await set_tasks(cluster, frontend, generation.MODEL_TASK_EMBED)
    answer = (await http.post("/score", json={"text_1": "a", "text_2": ["b", "bc", "b"]})).json()
    assert [each["score"] for each in answer["data"]] == pytest.approx([1, 0.6, 1])
    assert len(payloads) == 3 and {each.pooling.task for each in payloads} == {generation.MODEL_TASK_EMBED}
    answer = (await http.post("/rerank", json={"query": "a", "documents": ["bc", "b"]})).json()
    assert [each["index"] for each in answer["results"]] == [1, 0]


async def test_what_a_model_is_not_made_for_is_refused_by_name(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend
) -> None:
    """LM13: with the tasks that it has, which /v1/models tells."""
    serve(cluster)
    await set_tasks(cluster, frontend, generation.MODEL_TASK_CLASSIFY, generation.MODEL_TASK_SCORE)
    assert (await http.get("/v1/models")).json()["data"][0]["tasks"] == ["classify", "score"]
    assert (await http.post("/classify", json={"input": "a"})).status_code == 200
    for path, body in (
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/completions", {"prompt": "a"}),
        ("/pooling", {"input": "a", "task": "token_embed"}),
        ("/v2/embed", {"model": "toy", "texts": ["a"]}),
    ):
        answer = await http.post(path, json=body)
        assert answer.status_code == 400 and "it serves classify, score" in answer.text, (path, answer.text)
    await set_tasks(cluster, frontend, generation.MODEL_TASK_GENERATE)
    for path, body in (
        ("/rerank", {"query": "a", "documents": ["b"]}),
        ("/classify", {"input": "a"}),
        ("/pooling", {"input": "a"}),
    ):
        answer = await http.post(path, json=body)
        assert answer.status_code == 400 and "it serves generate" in answer.text, (path, answer.text)


async def test_classify(http: httpx.AsyncClient, cluster: Cluster) -> None:
    serve(cluster)
    answer = (await http.post("/classify", json={"model": "toy", "input": ["a", "bc"]})).json()
    assert answer["data"][1] == {"index": 1, "label": "LABEL_1", "probs": [0.25, 0.75], "num_classes": 2}
    assert answer["object"] == "list" and answer["usage"]["completion_tokens"] == 0


async def test_pooling(http: httpx.AsyncClient, cluster: Cluster) -> None:
    payloads = serve(cluster)
    body = {"input": [[5, 6], [7]], "task": "token_embed", "dimensions": 2, "normalize": False}
    answer = (await http.post("/pooling", json=body)).json()
    assert [each["data"] for each in answer["data"]] == [[[5.0, 0.5], [6.0, 0.5]], [[7.0, 0.5]]]
    assert payloads[0].pooling.raw and payloads[0].pooling.dimensions == 2
    answer = (await http.post("/pooling", json={"input": [5], "encoding_format": "base64"})).json()
    assert array("f", base64.b64decode(answer["data"][0]["data"])).tolist() == [5.0, 0.5]
    answer = (await http.post("/pooling", json={"input": "a", "task": "classify"})).json()
    assert answer["data"][0]["data"] == [0.25, 0.75]


async def test_coheres_embed(http: httpx.AsyncClient, cluster: Cluster) -> None:
    serve(cluster)
    body = {"model": "toy", "texts": ["a", "bc"], "input_type": "search_query", "embedding_types": ["float"]}
    answer = (await http.post("/v2/embed", json=body)).json()
    assert answer["embeddings"]["float"][0] == [1.0, 0.0] and answer["texts"] == ["a", "bc"]
    assert answer["meta"]["billed_units"]["input_tokens"] > 1


async def test_truncation(http: httpx.AsyncClient, cluster: Cluster) -> None:
    """What is longer than the context is refused by the name of the document, and cut where the client wants it."""
    payloads = serve(cluster)
    body = {"query": "the fox", "documents": ["dog", "dog " * 300]}
    answer = await http.post("/rerank", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (
        400,
        "documents[1]",
        "context_length_exceeded",
    )
    payloads.clear()
    assert (await http.post("/rerank", json=body | {"truncate_prompt_tokens": 20})).status_code == 200
    assert max(len(each.token_ids) for each in payloads) == 20 * 4
    payloads.clear()
    assert (await http.post("/rerank", json=body | {"max_tokens_per_doc": 5})).status_code == 200
    assert len(payloads[1].token_ids) == len(payloads[0].token_ids) + 4 * (5 - 3) or len(payloads) == 2
    payloads.clear()
    assert (await http.post("/rerank", json=body | {"truncate_prompt_tokens": -1})).status_code == 200
    assert max(len(each.token_ids) for each in payloads) == 200 * 4


async def test_bad_reranks_name_their_field(http: httpx.AsyncClient) -> None:
    good = {"query": "a", "documents": ["b"]}
    for change, param in (
        ({"documents": []}, "documents"),
        ({"documents": ["b"] * 1025}, "documents"),
        ({"documents": [{"title": "b"}]}, "documents[0].text"),
        ({"query": None}, "query"),
        ({"top_n": -1}, "top_n"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"rank_fields": ["title"]}, "rank_fields"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"temperature": 1}, "temperature"),
    ):
        answer = await http.post("/rerank", json=good | change)
        assert answer.status_code == 400, (change, answer.text)
        assert answer.json()["error"]["param"] == param, (change, answer.text)


async def test_many_documents_leave_others_their_turn(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend
) -> None:
    """LM13: 1,000 documents are a window of requests at a time."""
    held: list[Any] = []
    most = 0

    def hold(operation: Any) -> None:
        nonlocal most
        if operation.WhichOneof("operation") == "submit":
            held.append(operation.submit)
            most = max(most, len(held))

    cluster.scheduler.on_operation = hold
    body = {"query": "a", "documents": [f"d{n}" for n in range(1000)], "return_documents": False}
    call = asyncio.create_task(http.post("/rerank", json=body, timeout=60))
    done = 0
    while not call.done():
        await asyncio.sleep(0.001)
        submits, held[:] = list(held), []
        for submit in submits:
            done += 1
            cluster.scheduler.place(submit.ref)
            vector = array("f", [done]).tobytes()
            cluster.worker.emit(Row(submit.ref.attempt, 0, [], STOP, vector=vector))
    results = (await call).json()["results"]
    assert done == 1000 and most <= 64
    assert sorted(each["index"] for each in results) == list(range(1000))
    assert len(frontend.table) == 0


async def test_a_client_that_leaves_cancels_what_runs_and_opens_no_more(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend
) -> None:
    seen: list[Any] = []
    cluster.scheduler.on_operation = lambda operation: seen.append(operation.WhichOneof("operation"))
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/rerank", json={"query": "a", "documents": ["b"] * 300}, timeout=0.5)
    await until(lambda: len(frontend.table) == 0)
    assert seen.count("submit") <= 64
    await until(lambda: seen.count("cancel") == seen.count("submit"))


async def test_one_document_that_fails_ends_the_call(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend
) -> None:
    serve(cluster)
    inner = cluster.scheduler.on_operation
    assert inner is not None

    def answer(operation: Any) -> None:
        if operation.WhichOneof("operation") == "submit" and operation.submit.ref.request_id.endswith(":3"):
            ref = operation.submit.ref
            cluster.scheduler.place(ref)
            cluster.worker.emit(Row(ref.attempt, 0, [], STOP))
        else:
            inner(operation)

    cluster.scheduler.on_operation = answer
    reply = await http.post("/rerank", json={"query": "a", "documents": ["b"] * 100})
    assert reply.status_code == 500 and "vector" in reply.text
    await until(lambda: len(frontend.table) == 0)
