"""The body of POST /v1/batches."""

from __future__ import annotations

import re
from typing import Literal

from frontend_svc.api.batches.upload import check_expiry
from frontend_svc.api.openai.schema import Body
from signalbox.errors import InvalidRequestError

BatchPath = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
BATCH_PATHS: tuple[str, ...] = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
)
"""Endpoints that a batch may ask."""
MAX_LABELS, MAX_LABEL_CHARS, MAX_VALUE_CHARS = 16, 64, 512
"""OpenAI's limits on metadata."""
MAX_WINDOW_S = 30 * 86_400
_WINDOW = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS_S = {"m": 60, "h": 3600, "d": 86_400}


class ExpiresAfter(Body):
    """When files of results go."""

    anchor: Literal["created_at"]
    seconds: int


class BatchBody(Body):
    """The body of POST /v1/batches."""

    input_file_id: str
    endpoint: BatchPath
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None

    def check(self) -> tuple[int, int | None]:
        """(seconds that the batch may take, seconds that its results stay or None). Raises InvalidRequestError."""
        self._check_metadata()
        expires = self.output_expires_after
        stays_s = None if expires is None else check_expiry(expires.seconds, "output_expires_after")
        return read_window(self.completion_window), stays_s

    def _check_metadata(self) -> None:
        labels = self.metadata or {}
        if len(labels) > MAX_LABELS:
            raise InvalidRequestError(f"metadata: at most {MAX_LABELS} pairs", field="metadata")
        for name, value in labels.items():
            if len(name) > MAX_LABEL_CHARS or len(value) > MAX_VALUE_CHARS:
                raise InvalidRequestError(
                    f"metadata: names have at most {MAX_LABEL_CHARS} characters, values {MAX_VALUE_CHARS}",
                    field="metadata",
                )


def read_window(text: str) -> int:
    """Seconds of `24h`; minutes and days are written m and d. Raises InvalidRequestError."""
    match = _WINDOW.fullmatch(text)
    if match is None or (window_s := int(match[1]) * _UNITS_S[match[2]]) > MAX_WINDOW_S:
        raise InvalidRequestError(
            "completion_window must be a time such as 24h, 30m or 7d, up to 30d", field="completion_window"
        )
    return window_s
