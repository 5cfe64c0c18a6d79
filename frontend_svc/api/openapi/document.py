"""The OpenAPI document of an application: its routes, and the bodies that their handlers read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Route

from frontend_svc.api.openapi.reads import Reads, read_by
from frontend_svc.api.openapi.schemas import make_schemas
from signalbox import __version__

ABOUT = """\
OpenAI's API, vLLM's fields and endpoints beside it, and Anthropic's Messages API. Unknown fields are refused unless
they are null; answers are those of the APIs named.
"""
TAGS = (
    (re.compile(r"/v1/messages.*"), "Messages (Anthropic)"),
    (re.compile(r"/v1/(files|batches).*"), "Files and batches"),
    (re.compile(r"(/v[12])?/(rerank|score|classify|pooling|embed)"), "Vectors, labels and scores"),
    (re.compile(r"/v1/.*"), "OpenAI"),
    (re.compile(r"/(health|live|ready|ping|load|metrics|version|openapi.json)"), "This process"),
    (re.compile(r"/(|docs|board/.*)"), "Pages"),
    (re.compile(r"/.*"), "vLLM"),
)
SUMMARIES = {
    ("post", "/v1/completions"): "Write a prompt on",
    ("post", "/v1/chat/completions"): "Answer a conversation",
    ("post", "/v1/responses"): "Answer, with items for reasoning and calls",
    ("post", "/v1/embeddings"): "Vectors of texts",
    (
        "get",
        "/v1/models",
    ): "Models that are served; in Anthropic's shape for callers who send anthropic-version",
    ("get", "/v1/models/{model}"): "One model",
    ("post", "/tokenize"): "Tokens of a text or of a conversation",
    ("post", "/detokenize"): "Text of tokens",
    ("post", "/v1/messages"): "Answer a conversation, as Anthropic's API does",
    ("post", "/v1/messages/count_tokens"): "Tokens that a conversation has",
    ("post", "/v1/files"): "Keep a file",
    ("get", "/v1/files"): "List files",
    ("get", "/v1/files/{file_id}"): "One file",
    ("delete", "/v1/files/{file_id}"): "Drop a file",
    ("get", "/v1/files/{file_id}/content"): "What is in a file",
    ("post", "/v1/batches"): "Run the requests of a file",
    ("get", "/v1/batches"): "List batches",
    ("get", "/v1/batches/{batch_id}"): "One batch",
    ("post", "/v1/batches/{batch_id}/cancel"): "End a batch",
    **{("post", path): "Order documents by a query" for path in ("/rerank", "/v1/rerank", "/v2/rerank")},
    **{("post", path): "How well texts fit" for path in ("/score", "/v1/score")},
    ("post", "/classify"): "Labels of texts",
    ("post", "/pooling"): "What a model makes of texts, or of each token",
    ("post", "/v2/embed"): "Vectors of texts, in Cohere's shape",
    ("get", "/metrics"): "Metrics for Prometheus",
    ("get", "/version"): "The server's version",
}
"""What operations do; of others the handler's own words are told."""
FORMS: dict[str, Any] = {
    "/v1/files": {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "purpose": {"type": "string"},
        },
        "required": ["file", "purpose"],
    }
}
"""Bodies that are multipart forms, by path."""
HEADERS = {
    "x-request-id": "Name of the request; it comes back in the answer's header.",
    "x-request-timeout": "Seconds that the call may take.",
    "x-priority": "Lower runs first.",
    "traceparent": "W3C trace context.",
}
ERROR = {
    "type": "object",
    "description": "An error as OpenAI's API tells it. Callers of /v1/messages read Anthropic's.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field that is wrong."},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type"],
        }
    },
    "required": ["error"],
}


def make_document(routes: Iterable[BaseRoute], *, has_keys: bool) -> dict[str, Any]:
    """All routes but those that are not in the schema. `has_keys`: callers need one."""
    paths: dict[str, dict[str, Any]] = {}
    schemas = set()
    for route in routes:
        if not isinstance(route, Route) or not route.include_in_schema:
            continue
        read = read_by(route.endpoint)
        path = re.sub(r":\w+}", "}", route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            operation = _make_operation(path, method.lower(), route, read)
            paths.setdefault(path, {})[method.lower()] = operation
        if read is not None:
            schemas.add(read.schema)
    components: dict[str, Any] = {
        "schemas": make_schemas(sorted(schemas, key=lambda schema: schema.__name__)) | {"Error": ERROR}
    }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "signalbox", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": components,
    }
    if has_keys:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        document["security"] = [{"bearer": []}, {"key": []}]
    return document


def _make_operation(path: str, method: str, route: Route, read: Reads | None) -> dict[str, Any]:
    words = (inspect.getdoc(route.endpoint) or route.name).split("\n")[0]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    answers: dict[str, Any] = {"application/json": {}} | ({"text/event-stream": {}} if _streams(read) else {})
    operation: dict[str, Any] = {
        "operationId": f"{method}_{re.sub(r'[^a-zA-Z0-9]+', '_', path).strip('_') or 'root'}",
        "summary": SUMMARIES.get((method, path), words),
        "tags": [next(tag for pattern, tag in TAGS if pattern.fullmatch(path))],
        "responses": {
            "200": {"description": "Done", "content": answers},
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if read is not None:
        content = {
            "schema": {"$ref": f"#/components/schemas/{read.schema.__name__}"},
            "example": read.example,
        }
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
        if read.runs:
            parameters += [
                {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
                for name, text in HEADERS.items()
            ]
    elif method == "post" and path in FORMS:
        form = {"multipart/form-data": {"schema": FORMS[path]}}
        operation["requestBody"] = {"required": True, "content": form}
    return operation | ({"parameters": parameters} if parameters else {})


def _streams(read: Reads | None) -> bool:
    return read is not None and "stream" in read.schema.model_fields
