"""JSON schemas of public specifications; `python -m tools.form_corpus` writes them."""

from __future__ import annotations

import json
from pathlib import Path

from signalbox.grammar.form import Form, FormKind

SCHEMAS = Path(__file__).parent / "schemas.jsonl"
"""One schema per line, with the name that it has where it comes from: openai, anthropic and Kubernetes
(Apache-2.0), cohere and fastapi (MIT), guidellm (Apache-2.0)."""


def read_corpus() -> dict[str, Form]:
    """The schemas by name."""
    rows = [json.loads(line) for line in SCHEMAS.read_text().splitlines()]
    return {row["name"]: Form(FormKind.JSON_SCHEMA, json.dumps(row["schema"])) for row in rows}
