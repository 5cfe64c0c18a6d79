"""Lists in bodies have bounds that hold before their entries are made into anything.

Before, 8 MiB of empty parts of one message took 50 s and 8 GB to be refused.
"""

from __future__ import annotations

from typing import Any

MAX_ENTRIES = 16_384
"""Most entries of a list of anything but numbers; how many prompts and messages a call may have is a setting below it.
Lists of numbers are tokens, which are counted against the model's context."""


def bound_lists(schema: Any) -> None:
    """Bounds all lists of a schema of pydantic-core; the first wrong entry ends the check of a list of plain values."""
    if isinstance(schema, list | tuple):
        for each in schema:
            bound_lists(each)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "list":
        kind = schema.get("items_schema", {}).get("type")
        if kind in ("int", "str", "list"):
            schema["fail_fast"] = True
        if kind != "int":
            schema.setdefault("max_length", MAX_ENTRIES)
    for name, each in schema.items():
        if name != "metadata":
            bound_lists(each)
