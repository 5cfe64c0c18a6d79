"""JSON schemas of bodies, with the words and the ranges that the code has of their fields."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from frontend_svc.api.openai.schema import Body
from signalbox.protocol import sampling

Docs = dict[str, dict[str, str]]
REF = "#/components/schemas/{model}"
ALSO_BELOW = {"top_k": -1}
"""Fields that take one number below their range, by vLLM's custom."""


class _Described(GenerateJsonSchema):
    """Adds what a schema of types alone does not know; names are no titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        cls: type[Any] = schema["cls"]
        made["description"] = inspect.getdoc(cls) or ""
        properties: dict[str, Any] = made.get("properties", {})
        fields = {name: _name_of(name, field) for name, field in cls.model_fields.items()}
        for name, told in fields.items():
            _describe(properties[told], name, cls)
        if harmless := getattr(cls, "harmless_values", None):
            for name, values in harmless(cls.model_construct()).items():
                properties[fields[name]] |= {"enum": list(values), "description": "At these values only."}
        return made


def make_schemas(bodies: Sequence[type[Body]]) -> dict[str, Any]:
    """Components by name: the bodies under their own, and all that they refer to."""
    _, schemas = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=REF, schema_generator=_Described
    )
    return dict(schemas["$defs"])


def _name_of(name: str, field: FieldInfo) -> str:
    """How a body writes a field."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return str(alias.choices[0])
    return alias if isinstance(alias, str) else name


def _describe(made: dict[str, Any], name: str, cls: type[Any]) -> None:
    if text := _doc_of(cls, name):
        made["description"] = text
    bounds = sampling.RANGES.get(name)
    for each in made.get("anyOf", [made]):
        if bounds is not None and each.get("type") in ("integer", "number"):
            low = ALSO_BELOW.get(name, bounds.low)
            each |= {"minimum" if bounds.has_low else "exclusiveMinimum": low, "maximum": bounds.high}


def _doc_of(cls: type[Any], name: str) -> str:
    """The words behind a field; those of a sampling parameter are in its table."""
    for base in cls.__mro__:
        module = inspect.getmodule(base)
        if module is not None and base.__module__.startswith("frontend_svc"):
            found = _docs_of(module).get(base.__name__, {}).get(name)
            if found:
                return found
    return _docs_of(sampling).get("SamplingFields", {}).get(name, "")


@cache
def _docs_of(module: ModuleType) -> Docs:
    """Strings behind the fields of a module's classes."""
    docs: Docs = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                docs.setdefault(node.name, {})[field.target.id] = inspect.cleandoc(str(text.value.value))
    return docs
