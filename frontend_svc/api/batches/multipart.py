"""multipart/form-data (RFC 7578) as it comes in: a form with small fields and one file, which goes on as it is read.

Nothing is kept but the small fields and what could be the beginning of a boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser

from signalbox.errors import InvalidRequestError

MAX_HEADER_BYTES = 8 << 10
MAX_FIELD_BYTES = 4 << 10
MAX_PARTS = 32
MAX_BOUNDARY_CHARS = 70
"""RFC 2046 allows no more."""
_CRLF = b"\r\n"
_END_OF_HEADERS = b"\r\n\r\n"


@dataclass(frozen=True)
class FormField:
    """A field of a form, whole."""

    name: str
    value: str


@dataclass(frozen=True)
class FormFile:
    """A file begins; its content follows."""

    name: str
    filename: str


@dataclass(frozen=True)
class FormData:
    """Some content of the file that began last."""

    data: bytes


FormPart = FormField | FormFile | FormData


def read_boundary(content_type: str) -> bytes:
    """The boundary that a Content-Type names. Raises InvalidRequestError when it is none of a form."""
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_param("boundary")
    if message.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise InvalidRequestError(
            "the body has to be multipart/form-data with a boundary", field="content-type"
        )
    if not 0 < len(boundary) <= MAX_BOUNDARY_CHARS or not boundary.isascii() or not boundary.isprintable():
        raise InvalidRequestError("the boundary of the form is none", field="content-type")
    return boundary.encode()


class MultipartReader:
    """Takes bytes as they come and gives parts of the form; raises InvalidRequestError for what is no form."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = _CRLF + b"--" + boundary
        self._rest = bytearray(_CRLF)  # the first boundary may stand at the very beginning
        self._take = self._skip_preamble
        self._field: str | None = None
        """Name of the field that is read; None: it is a file, or nothing."""
        self._value = b""
        self._num_parts = 0
        self.is_complete = False
        """The last boundary has come; what follows says nothing."""

    def feed(self, data: bytes) -> Iterator[FormPart]:
        """What can be told of the form by now."""
        self._rest += data
        while not self.is_complete:
            before = len(self._rest), self._take
            yield from self._take()
            if (len(self._rest), self._take) == before:
                return
        self._rest.clear()

    # -- states: each takes what it can from the front of `_rest` --

    def _skip_preamble(self) -> Iterator[FormPart]:
        at = self._rest.find(self._delimiter)
        if at < 0:
            if len(self._rest) > MAX_HEADER_BYTES:
                raise _no_form("it does not begin with its boundary")
            return
        del self._rest[: at + len(self._delimiter)]
        self._take = self._end_boundary
        yield from ()

    def _end_boundary(self) -> Iterator[FormPart]:
        """Behind a boundary: two dashes end the form, a line's end begins a part."""
        if len(self._rest) < 2:
            return
        if self._rest.startswith(b"--"):
            self.is_complete = True
            return
        end = self._rest.find(_CRLF)
        if end < 0 or self._rest[:end].strip(b" \t"):
            if end >= 0 or len(self._rest) > MAX_HEADER_BYTES:
                raise _no_form("there is something behind a boundary")
            return
        del self._rest[:end]  # the line's end belongs to the headers: there may be none
        self._take = self._read_headers
        yield from ()

    def _read_headers(self) -> Iterator[FormPart]:
        end = self._rest.find(_END_OF_HEADERS)
        if end > MAX_HEADER_BYTES or (end < 0 and len(self._rest) > MAX_HEADER_BYTES):
            raise _no_form("the headers of a part are too long")
        if end < 0:
            return
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise _no_form(f"it has more than {MAX_PARTS} parts")
        name, filename = _read_disposition(bytes(self._rest[:end]))
        # The line's end stays: a part without content is followed by its boundary at once.
        del self._rest[: end + len(_CRLF)]
        self._take, self._value = self._read_content, b""
        self._field = name if filename is None else None
        self._is_first = True
        if filename is not None:
            yield FormFile(name, filename)

    def _read_content(self) -> Iterator[FormPart]:
        if self._is_first:
            if self._rest.startswith(self._delimiter):
                yield from self._end_part(b"")
                return
            if len(self._rest) < len(self._delimiter) and self._delimiter.startswith(self._rest):
                return  # nothing but the beginning of a boundary, so far
            del self._rest[: len(_CRLF)]
            self._is_first = False
        at = self._rest.find(self._delimiter)
        if at >= 0:
            content = bytes(self._rest[:at])
            del self._rest[:at]
            yield from self._end_part(content)
            return
        keep = _overlap(self._rest, self._delimiter)
        content = bytes(self._rest[: len(self._rest) - keep])
        del self._rest[: len(content)]
        yield from self._tell(content)

    def _end_part(self, content: bytes) -> Iterator[FormPart]:
        yield from self._tell(content)
        if self._field is not None:
            yield FormField(self._field, _as_text(self._value))
        del self._rest[: len(self._delimiter)]
        self._take = self._end_boundary

    def _tell(self, content: bytes) -> Iterator[FormPart]:
        if self._field is None:
            if content:
                yield FormData(content)
            return
        self._value += content
        if len(self._value) > MAX_FIELD_BYTES:
            raise InvalidRequestError(
                f"{self._field}: longer than {MAX_FIELD_BYTES} bytes", field=self._field
            )


def _overlap(data: bytearray, delimiter: bytes) -> int:
    """Bytes at the end of `data` with which `delimiter` may begin."""
    for size in range(min(len(data), len(delimiter) - 1), 0, -1):
        if data.endswith(delimiter[:size]):
            return size
    return 0


def _read_disposition(headers: bytes) -> tuple[str, str | None]:
    """(name, file name) of a part; None: it is no file."""
    message = HeaderParser().parsestr(_as_text(headers).lstrip("\r\n"))
    name = message.get_param("name", header="content-disposition")
    if message.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise _no_form("a part has no name")
    encoding = str(message.get("content-transfer-encoding", "binary")).lower()
    if encoding not in ("binary", "8bit", "7bit"):
        raise _no_form("a part has a transfer encoding")
    return name, message.get_filename()


def _as_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _no_form("a field is not UTF-8") from None


def _no_form(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"the body is no form: {why}")
