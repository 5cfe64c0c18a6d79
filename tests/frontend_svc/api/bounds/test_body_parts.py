"""Bodies and messages with so many parts that to read them would hold the event loop (F13)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from frontend_svc.api.grpc.request import MAX_ITEMS, MAX_NUMBERS, refuse_unknown_fields
from frontend_svc.api.http.body import parse_body
from frontend_svc.api.http.body_parts import MAX_GROUPS, MAX_NAMES, MAX_STRINGS, MAX_VALUES, check_parts
from frontend_svc.api.openai.completion_body import CompletionBody
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.v1 import frontend_pb2, generation_pb2
from tests.loop_watch.watch import LIMIT_S

MANY = 1_000_000


def refused(data: bytes) -> str:
    """The words of it. Processor time is looked at, as whoever waits behind it does."""
    began = time.thread_time()
    with pytest.raises(InvalidRequestError) as caught:
        parse_body(data, CompletionBody)
    assert time.thread_time() - began < LIMIT_S
    return caught.value.message


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        (b",".join(b'"x%d":1' % number for number in range(300_000)), "300001 names"),
        (b'"x":[' + b",".join([b"[]"] * MANY) + b"]", "1000002 lists and objects"),
        (b'"x":' + b"[" * MANY, "1000001 lists and objects"),
        (b'"prompt":[' + b"1," * (2 * MANY) + b"1]", "2000002 values"),
        (b'"prompt":[' + b'"a",' * MANY + b'"a"]', "1000004 strings"),
    ],
    ids=["unknown fields", "empty lists", "nested lists", "numbers", "strings"],
)
def test_a_body_with_too_many_parts_is_refused_before_it_is_read(inside: bytes, words: str) -> None:
    """Six megabytes of unknown fields were 0.36 s of the loop each, empty lists two seconds."""
    assert words in refused(b'{"prompt":"a",' + inside + b"}")


def test_parts_are_counted_outside_of_strings() -> None:
    """Any text may be sent, whatever stands in it; escapes end no string."""
    for text in (r"[{\"a\":1},", "[[[[", ",,,,", r"\\\\", r"\\\"", r"\u0022[,"):
        check_parts(b'{"prompt":"' + text.encode() * (4_000_000 // len(text)) + b'"}')
    with pytest.raises(InvalidRequestError, match="strings"):
        check_parts(b'{"prompt":"' + rb"\\" * 500_000 + b'","x":[' + b'"",' * (MAX_STRINGS + 1) + b"1]}")


def test_the_limits_themselves_pass() -> None:
    strings = MAX_STRINGS - 1
    check_parts(b'{"p":[' + b'"aa",' * (strings - 1) + b'"aa"]}')
    check_parts(b"{" + b'"x":1,' * (MAX_NAMES - 1) + b'"x":1}')
    check_parts(b"[" + b"[1],    " * (MAX_GROUPS - 2) + b"[]]")
    check_parts(b"[" + b"1," * (MAX_VALUES - 1) + b"1]")
    check_parts(b"[" * 60_000)  # small: the parser says what is wrong with it


def _embed() -> frontend_pb2.EmbedRequest:
    return frontend_pb2.EmbedRequest(inputs=[frontend_pb2.EmbedInput(text="")] * MANY)


def _token_ids() -> frontend_pb2.GenerateRequest:
    ids = frontend_pb2.TokenIds(ids=[1] * (MAX_NUMBERS + 1))
    return frontend_pb2.GenerateRequest(token_ids=ids)


def _bad_words() -> frontend_pb2.GenerateRequest:
    sampling = generation_pb2.SamplingParams(bad_words=["a"] * (MAX_ITEMS + 1))
    return frontend_pb2.GenerateRequest(text="a", sampling=sampling)


def _bias() -> frontend_pb2.GenerateRequest:
    sampling = generation_pb2.SamplingParams(logit_bias=dict.fromkeys(range(MANY // 4), 1.0))
    return frontend_pb2.GenerateRequest(text="a", sampling=sampling)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_embed, "inputs has 1000000 items"),
        (_token_ids, "token_ids.ids has 1048577 items"),
        (_bad_words, "sampling.bad_words has 16385 items"),
        (_bias, "sampling.logit_bias has 250000 items"),
    ],
)
def test_a_message_with_too_many_items_is_refused_at_once(
    make: Callable[[], frontend_pb2.GenerateRequest], words: str
) -> None:
    """Two million inputs, which fit a message, held the loop for 27 s."""
    message = make()
    began = time.thread_time()
    with pytest.raises(InvalidRequestError, match=words):
        refuse_unknown_fields(message)
    assert time.thread_time() - began < LIMIT_S


def test_many_unknown_fields_are_refused_together() -> None:
    """Each by itself they took 3.4 s."""
    known = frontend_pb2.GenerateRequest(text="a").SerializeToString()
    message = frontend_pb2.GenerateRequest.FromString(known + b"\xf8\x3f\x01" * MANY)
    began = time.thread_time()
    with pytest.raises(UnsupportedError, match="many fields"):
        refuse_unknown_fields(message)
    assert time.thread_time() - began < LIMIT_S
    few = frontend_pb2.GenerateRequest.FromString(known + b"\xf8\x3f\x01")
    with pytest.raises(UnsupportedError, match="field number 1023"):
        refuse_unknown_fields(few)


def test_a_large_message_without_unknown_fields_passes() -> None:
    ids = frontend_pb2.TokenIds(ids=list(range(200_000)))
    refuse_unknown_fields(frontend_pb2.GenerateRequest(token_ids=ids))
    refuse_unknown_fields(frontend_pb2.GenerateRequest(text="a" * 5_000_000))
