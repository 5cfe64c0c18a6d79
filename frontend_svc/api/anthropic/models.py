"""Models that are served, as Anthropic's API lists them: for callers who say its version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from frontend_svc.models import Model
from signalbox.errors import InvalidRequestError

VERSION_HEADER = "anthropic-version"
"""Header of all calls of Anthropic's SDKs and of Claude Code."""
DEFAULT_LIMIT, MAX_LIMIT = 20, 1000


def make_model(model: Model, created_s: int) -> dict[str, Any]:
    """One model; `created_s` is when it was first served here, in seconds since 1970."""
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(created_s, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "line": None,
        "deprecated_at": None,
        "capabilities": None,
        "max_input_tokens": model.max_tokens,
        "max_tokens": model.max_tokens,
    }


def make_page(models: Sequence[Model], created_s: int, query: Mapping[str, str]) -> dict[str, Any]:
    """One page of the list. Raises InvalidRequestError for a wrong `limit`."""
    limit = _limit_of(query.get("limit", str(DEFAULT_LIMIT)))
    ids = [model.name for model in models]
    start, end = 0, len(models)
    if (after := query.get("after_id")) in ids:
        start = ids.index(after) + 1
    if (before := query.get("before_id")) in ids:
        end = ids.index(before)
        start = max(start, end - limit)
        has_more = start > 0
    else:
        has_more = end - start > limit
    page = models[start:end][:limit]
    return {
        "data": [make_model(model, created_s) for model in page],
        "has_more": has_more,
        "first_id": page[0].name if page else None,
        "last_id": page[-1].name if page else None,
    }


def _limit_of(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be from 1 to {MAX_LIMIT}, got {text!r}", field="limit")
    return int(text)
