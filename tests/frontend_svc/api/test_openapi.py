"""The API's own description is valid, has every route, and says what is read."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from frontend_svc.api.openapi.document import SUMMARIES
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.guarded import KeyRing, Start
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster

VECTORS = "Vectors, labels and scores"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def document(http: httpx.AsyncClient) -> Any:
    answer = await http.get("/openapi.json")
    assert answer.status_code == 200
    return answer.json()


def routes_of(frontend: Frontend) -> list[Route]:
    routes = frontend._make_api().app.routes
    return [route for route in routes if isinstance(route, Route) and route.include_in_schema]


def schema_of(document: Any, name: str) -> Any:
    """A component, for validators that want to find what it refers to."""
    return {"$ref": f"#/components/schemas/{name}", "components": document["components"]}


async def test_the_document_is_valid(document: Any) -> None:
    OpenAPIV31SpecValidator(document).validate()
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_every_route_is_in_it(document: Any, frontend: Frontend) -> None:
    routes = {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in routes_of(frontend)
        for method in (route.methods or set()) - {"HEAD"}
    }
    told = {(path, method) for path, operations in document["paths"].items() for method in operations}
    assert told == routes
    ids = [each["operationId"] for operations in document["paths"].values() for each in operations.values()]
    assert len(set(ids)) == len(ids)
    for path in ("/v1/chat/completions", "/v1/messages", "/tokenize", "/ready", "/docs", "/openapi.json"):
        assert path in document["paths"]


async def test_no_summary_is_of_a_path_that_is_gone(start: Start, cluster: Cluster, tmp_path: Path) -> None:
    frontend = await start(key_file=None, files_dir=tmp_path / "files")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        document = (await http.get("/openapi.json")).json()
    OpenAPIV31SpecValidator(document).validate()
    assert [key for key in SUMMARIES if key[0] not in document["paths"].get(key[1], {})] == []
    form = document["paths"]["/v1/files"]["post"]["requestBody"]["content"]
    assert form["multipart/form-data"]["schema"]["required"] == ["file", "purpose"]


def test_what_handlers_read_is_what_they_say() -> None:
    """The decorator names the model that `read_body` is given, and each that reads a body has one."""
    found = 0
    for path in sorted((ROOT / "frontend_svc" / "api").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.AsyncFunctionDef) or node.name == "read_body":
                continue
            read = [
                ast.unparse(call.args[2])
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "read_body"
            ]
            said = [
                ast.unparse(mark.args[0])
                for mark in node.decorator_list
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "reads"
            ]
            assert said == read, f"{path.name}: {node.name} reads {read} and says {said}"
            found += len(read)
    assert found >= 9


async def test_fields_have_words_ranges_and_the_values_that_are_served(document: Any) -> None:
    fields = document["components"]["schemas"]["ChatBody"]["properties"]
    assert fields["temperature"]["description"].startswith("0 is greedy")
    numbers = {each.get("type"): each for each in fields["temperature"]["anyOf"]}
    assert (numbers["number"]["minimum"], numbers["number"]["maximum"]) == (0, 100)
    assert {each.get("type"): each for each in fields["top_k"]["anyOf"]}["integer"]["minimum"] == -1
    assert fields["use_beam_search"]["enum"] == [None, False]
    assert fields["skip_special_tokens"]["description"]
    assert document["components"]["schemas"]["ChatBody"]["required"] == ["messages"]
    described = [field for field in fields.values() if field.get("description")]
    assert len(described) > len(fields) * 0.7


async def test_examples_fit_and_are_served(
    document: Any, http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, " fox")
    served = []
    for path, operations in document["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        validator = jsonschema.Draft202012Validator(
            schema_of(document, content["schema"]["$ref"].split("/")[-1])
        )
        validator.validate(content["example"])
        if operations["post"]["tags"] == [VECTORS] or path == "/v1/embeddings":  # the worker makes no vectors
            continue
        answer = await http.post(path, json=content["example"])
        assert answer.status_code == 200, (path, answer.text)
        served.append(path)
        wrong = content["example"] | {"no_such_field": 1}
        assert not validator.is_valid(wrong)
        assert (await http.post(path, json=wrong)).status_code == 400
    assert len(served) >= 7


async def test_keys_are_told_and_none_is_needed_to_read_it(start: Start, ring: KeyRing) -> None:
    frontend = await start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        document = (await http.get("/openapi.json")).json()
        assert (await http.get("/docs")).status_code == 200
        assert (await http.get("/v1/models")).status_code == 401
    OpenAPIV31SpecValidator(document).validate()
    assert document["security"] == [{"bearer": []}, {"key": []}]


async def test_the_page_of_it_names_nothing_that_is_not_served(http: httpx.AsyncClient) -> None:
    page = await http.get("/docs")
    assert page.status_code == 200 and "content-security-policy" in page.headers
    for path in re.findall(r'(?:src|href)="(/[^"]*)"', page.text):
        assert (await http.get(path)).status_code == 200, path
