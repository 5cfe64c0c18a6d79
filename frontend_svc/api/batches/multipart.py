"""multipart/form-data (RFC 7578) as it comes in: a form with small fields and one file, which goes on as it is read.

python-multipart reads; nothing is kept here but the small fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from signalbox.errors import InvalidRequestError

MAX_FIELD_BYTES = 4 << 10
MAX_PARTS = 32
MAX_BOUNDARY_CHARS = 70
"""RFC 2046 allows no more."""
ENCODINGS = (b"binary", b"8bit", b"7bit")
"""Transfer encodings that change nothing."""


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
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_header_name,
                "on_header_value": self._add_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )
        self._told: list[FormPart] = []
        """Parts of the bytes that are being read."""
        self._header_name, self._header_value = bytearray(), bytearray()
        self._headers: dict[str, bytes] = {}
        """Headers of the part that is read, by names in small letters."""
        self._field: str | None = None
        """Name of the field that is read; None: it is a file, or nothing."""
        self._value = bytearray()
        self._num_parts = 0
        self.is_complete = False
        """The last boundary has come; what follows says nothing."""

    def feed(self, data: bytes) -> Iterator[FormPart]:
        """What can be told of the form by now."""
        if self.is_complete:
            return
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _no_form(str(error)) from None
        told, self._told = self._told, []
        yield from told

    # -- what python-multipart calls --

    def _begin_part(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise _no_form(f"it has more than {MAX_PARTS} parts")
        self._headers.clear()
        self._value.clear()

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        self._headers[_as_text(self._header_name).lower()] = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _end_headers(self) -> None:
        kind, options = parse_options_header(self._headers.get("content-disposition", b""))
        name, filename = options.get(b"name"), options.get(b"filename")
        if kind != b"form-data" or name is None:
            raise _no_form("a part has no name")
        if self._headers.get("content-transfer-encoding", b"binary").lower() not in ENCODINGS:
            raise _no_form("a part has a transfer encoding")
        self._field = _as_text(name) if filename is None else None
        if filename is not None:
            self._told.append(FormFile(_as_text(name), _as_text(filename)))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._told.append(FormData(data[start:end]))
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise InvalidRequestError(
                f"{self._field}: longer than {MAX_FIELD_BYTES} bytes", field=self._field
            )

    def _end_part(self) -> None:
        if self._field is not None:
            self._told.append(FormField(self._field, _as_text(self._value)))

    def _end(self) -> None:
        self.is_complete = True


def _as_text(data: bytes | bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _no_form("a field is not UTF-8") from None


def _no_form(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"the body is no form: {why}")
