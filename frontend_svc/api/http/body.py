"""Request bodies: bounded bytes, then JSON, then a schema."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from frontend_svc.api.http.body_parts import check_parts
from frontend_svc.api.http.errors import JSON
from frontend_svc.api.openai.schema import TAG, Body
from signalbox.errors import (
    CancelledError,
    InvalidRequestError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)

log = logging.getLogger(__name__)

B = TypeVar("B", bound=Body)
MAX_TOLD = 256
"""Fields that the log tells of: a client could make up names without end."""
MAX_ERRORS = 256
"""To list the errors of a body takes far longer than to find them."""
_told: set[str] = set()


def require_json(request: Request) -> None:
    """Raises UnsupportedMediaTypeError unless the body is said to be JSON: a web page may send anybody's server
    whatever it says is text or a form."""
    told = request.headers.get("content-type", "")
    name = told.partition(";")[0].strip().lower()
    if name != JSON and not (name.startswith("application/") and name.endswith("+json")):
        raise UnsupportedMediaTypeError(f"Content-Type must be {JSON}, got {told!r}", field="Content-Type")


async def read_bytes(
    request: Request, max_bytes: int, take: Callable[[int], None] = lambda num_bytes: None
) -> bytes:
    """The body. Raises RequestTooLargeError as soon as it is too large, read or not. `take` is told of bytes as they
    come, and may refuse them."""
    too_large = RequestTooLargeError(f"the body is larger than {max_bytes} bytes")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            take(len(chunk))
            if size > max_bytes:
                raise too_large
            chunks.append(chunk)
    except ClientDisconnect:
        raise CancelledError("the client left") from None
    return b"".join(chunks)


def parse_body(data: bytes, schema: type[B], *, drop_unknown: bool = False) -> B:
    """The body as the schema has it. Fields that are not in it are let pass where they are null, and with
    `drop_unknown` in any case, which the log tells once for each.

    Raises InvalidRequestError, which names the first wrong field.
    """
    check_parts(data)
    try:
        with _no_collection():
            return _validate(orjson.loads(data), schema, drop_unknown)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from None
    except ValidationError as error:
        _check_number(error)
        first = error.errors(include_url=False, include_input=False)[0]
        field = _field_of(first["loc"])
        if first["type"] == "extra_forbidden":
            raise InvalidRequestError(f"{field} is not a field of this request", field=field) from None
        raise InvalidRequestError(f"{field or 'the body'}: {first['msg']}", field=field) from None


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing of a body is garbage while it is read, and to look for some takes longer than to read it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _check_number(error: ValidationError) -> None:
    count = error.error_count()
    if count > MAX_ERRORS:
        raise InvalidRequestError(f"the body has {count} errors") from None


def _validate(value: Any, schema: type[B], drop_unknown: bool) -> B:
    """Raises ValidationError."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        _check_number(error)
        extra = [each for each in error.errors(include_url=False) if each["type"] == "extra_forbidden"]
        dropped = [each["loc"] for each in extra if drop_unknown or each["input"] is None]
        if not dropped:
            raise
        for loc in dropped:
            if not _drop(value, loc):
                raise
            if drop_unknown:
                _tell(_field_of(tuple(part for part in loc if isinstance(part, str))))
    return schema.model_validate(value)  # all extra fields are told at once, so those left are refused


def _drop(value: Any, loc: tuple[int | str, ...]) -> bool:
    """Takes a field out of a body of dicts and lists; no when it is not there."""
    *path, name = [part for part in loc if isinstance(part, int) or not part.startswith(TAG)]
    try:
        for part in path:
            value = value[part]
        del value[name]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _tell(field: str) -> None:
    if field not in _told and len(_told) < MAX_TOLD:
        _told.add(field)
        log.warning("requests have the field %s, which is not known here and does nothing", field)


def _field_of(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content` of ("messages", 0, "content", "as string")."""
    field = ""
    for part in loc:
        if isinstance(part, int):
            field += f"[{part}]"
        elif not part.startswith(TAG):
            field += f".{part}" if field else part
    return field
