"""Request bodies: bounded bytes, then JSON, then a schema."""

from __future__ import annotations

from typing import TypeVar

import orjson
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from frontend_svc.api.openai.schema import TAG, Body
from signalbox.errors import CancelledError, InvalidRequestError, RequestTooLargeError

B = TypeVar("B", bound=Body)


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """The body. Raises RequestTooLargeError as soon as it is too large, read or not."""
    too_large = RequestTooLargeError(f"the body is larger than {max_bytes} bytes")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise too_large
            chunks.append(chunk)
    except ClientDisconnect:
        raise CancelledError("the client left") from None
    return b"".join(chunks)


def parse_body(data: bytes, schema: type[B]) -> B:
    """Raises InvalidRequestError, which names the first wrong field."""
    try:
        return schema.model_validate(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = _field_of(first["loc"])
        if first["type"] == "extra_forbidden":
            raise InvalidRequestError(f"{field} is not a field of this request", field=field) from None
        raise InvalidRequestError(f"{field or 'the body'}: {first['msg']}", field=field) from None


def _field_of(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content` of ("messages", 0, "content", "as string")."""
    field = ""
    for part in loc:
        if isinstance(part, int):
            field += f"[{part}]"
        elif not part.startswith(TAG):
            field += f".{part}" if field else part
    return field
