"""Whether an API server would take a document, with no field that it would drop."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

LATEST = kubernetes_validate.latest_version()
SCHEMAS = Path(__file__).parent / "schemas"
"""One file for each kind that is not Kubernetes' own: as much of its definition as we use, and no other field."""


@cache
def custom_kinds() -> dict[tuple[str, str], dict[str, Any]]:
    """Schemas of `spec`, by apiVersion and kind."""
    files = [yaml.safe_load(path.read_text()) for path in sorted(SCHEMAS.iterdir())]
    return {(file["apiVersion"], file["kind"]): file["spec"] for file in files}


def validate(document: dict[str, Any], version: str = LATEST) -> None:
    """Raises ValidationError of jsonschema or kubernetes_validate, which name the field."""
    schema = custom_kinds().get((document["apiVersion"], document["kind"]))
    if schema is None:
        kubernetes_validate.validate(document, version, strict=True)
        return
    jsonschema.validate(document["spec"], schema)
    # Everything around `spec` is as in any other document.
    others = {name: value for name, value in document.items() if name != "spec"}
    kubernetes_validate.validate(others | {"apiVersion": "v1", "kind": "ConfigMap"}, version, strict=True)
