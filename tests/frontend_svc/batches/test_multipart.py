"""Forms as they come in: any cut of their bytes says the same, and no form is a bug."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend_svc.api.batches.multipart import (
    MAX_FIELD_BYTES,
    FormData,
    FormField,
    FormFile,
    MultipartReader,
    read_boundary,
)
from signalbox.errors import InvalidRequestError

BOUNDARY = b"xYz"
HOSTILE = st.lists(
    st.sampled_from([b"\r\n", b"--xYz", b"\r\n--xYz", b"\r\n--xY", b"--", b"\r", b"\n", b"a", b"{}", b"\0"])
).map(b"".join)


def part(headers: str, content: bytes) -> bytes:
    return b"--xYz\r\n" + headers.encode() + b"\r\n\r\n" + content + b"\r\n"


def field(name: str, value: bytes) -> bytes:
    return part(f'Content-Disposition: form-data; name="{name}"', value)


def file(content: bytes, filename: str = "a.jsonl") -> bytes:
    head = f'Content-Disposition: form-data; name="file"; filename="{filename}"\r\nContent-Type: text/plain'
    return part(head, content)


def read(body: bytes, cuts: list[int]) -> tuple[dict[str, str], list[str], bytes, bool]:
    """(fields, file names, content, whether the form is whole)."""
    reader = MultipartReader(BOUNDARY)
    fields: dict[str, str] = {}
    names: list[str] = []
    content = b""
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    for start, end in pairwise(places):
        for each in reader.feed(body[start:end]):
            match each:
                case FormField(name, value):
                    fields[name] = value
                case FormFile(_, filename):
                    names.append(filename)
                case FormData(data):
                    content += data
    return fields, names, content, reader.is_complete


@given(HOSTILE.filter(lambda data: b"\r\n--xYz" not in b"\r\n" + data), st.lists(st.integers(0, 400)))
def test_any_cut_gives_the_same_file(content: bytes, cuts: list[int]) -> None:
    body = field("purpose", b"batch") + file(content) + field("x", b"") + b"--xYz--\r\n"
    assert read(body, cuts) == ({"purpose": "batch", "x": ""}, ["a.jsonl"], content, True)


@given(HOSTILE, st.lists(st.integers(0, 200)))
def test_what_is_no_form_is_refused_and_no_bug(body: bytes, cuts: list[int]) -> None:
    with contextlib.suppress(InvalidRequestError):
        read(body, cuts)


def test_one_byte_at_a_time() -> None:
    body = file(b"one\r\n-\r\n--xY\r\n", "\u00e4.jsonl") + b"--xYz-- epilogue"
    assert read(body, list(range(len(body)))) == ({}, ["\u00e4.jsonl"], b"one\r\n-\r\n--xY\r\n", True)


@pytest.mark.parametrize(
    "body",
    [
        b"nothing" * 2000,
        b"--xYz\r\n" + b"a: b\r\n" * 4000,
        b"--xYz\r\nContent-Type: text/plain\r\n\r\nno name\r\n--xYz--",
        b"--xYzw\r\n\r\n",
        field("x", b"v" * (MAX_FIELD_BYTES + 1)),
        field("x", b"\xff") + b"--xYz--",
        field("x", b"") * 40,
        part('Content-Disposition: form-data; name="f"\r\nContent-Transfer-Encoding: base64', b""),
    ],
)
def test_hostile_forms_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        read(body, [])


def test_what_has_not_ended_is_not_whole() -> None:
    assert read(file(b"abc"), [])[3] is False


@pytest.mark.parametrize(
    "value", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=" + "b" * 71]
)
def test_a_boundary_is_needed(value: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_boundary(value)


def test_a_quoted_boundary() -> None:
    assert read_boundary('multipart/form-data; boundary="a b"') == b"a b"
