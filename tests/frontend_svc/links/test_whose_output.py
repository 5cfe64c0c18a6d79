"""Output counts from the worker that has the request, and from nobody else: R11."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from frontend_svc.links import outputs
from frontend_svc.requests.request import Sampling
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from signalbox.protocol.enums import LossCause
from signalbox.v1 import generation_pb2, worker_pb2
from tests.frontend_svc.helpers import make_logprobs
from tests.frontend_svc.requests.test_sessions import Recorder, make_request, make_table
from tests.frontend_svc.scripted_cluster import Row, make_batch

OURS, OTHER = "worker-0", "worker-7"
STOP = generation_pb2.FINISH_REASON_STOP


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def table(recorder: Recorder) -> SessionTable:
    return make_table(recorder)


def say(table: SessionTable, worker_id: str, *rows: Row, sequence: int = 1) -> worker_pb2.OutputBatch:
    batch = make_batch(sequence, rows)
    outputs.feed(batch, table, 1.0, worker_id)
    return batch


def placed(table: SessionTable, **changes: Any) -> Session:
    session = table.open(make_request(**changes))
    session.on_placed(session.attempt, OURS, 0)
    return session


def test_another_worker_s_tokens_and_ends_are_left_out(table: SessionTable, recorder: Recorder) -> None:
    session = placed(table)
    say(table, OURS, Row(session.attempt, 0, [5]))
    say(table, OTHER, Row(session.attempt, 1, [6], reason=STOP))
    say(table, OTHER, Row(session.attempt, 1, reason=STOP))
    assert list(session.output) == [5] and not session.ended and session.worker_id == OURS
    say(table, OURS, Row(session.attempt, 1, [7], reason=STOP))
    assert list(session.output) == [5, 7] and len(recorder.ended) == 1


def test_another_worker_s_hole_costs_no_attempt(table: SessionTable, recorder: Recorder) -> None:
    session = placed(table)
    say(table, OTHER, Row(session.attempt, 50, [6]))
    assert session.attempt == 1 and recorder.losses == []


def test_another_worker_s_log_probabilities_of_the_prompt_are_left_out(table: SessionTable) -> None:
    session = placed(table, sampling=Sampling(prompt_logprobs=1))
    say(table, OTHER, Row(session.attempt, 0, prompt_logprobs=[make_logprobs(8), make_logprobs(9)]))
    say(table, OURS, Row(session.attempt, 0, prompt_logprobs=[make_logprobs(2), make_logprobs(3)]))
    say(table, OURS, Row(session.attempt, 0, [5], reason=STOP))
    delta = session.take_delta()
    assert list(delta.prompt_logprobs) == [make_logprobs(2), make_logprobs(3)]


def test_another_worker_s_vector_is_left_out(table: SessionTable) -> None:
    session = placed(table)
    say(table, OTHER, Row(session.attempt, 0, vector=struct.pack("<f", 8.0)))
    say(table, OURS, Row(session.attempt, 0, reason=STOP))
    assert session.take_delta().vector == b""


def test_whoever_speaks_first_is_heard_where_nobody_has_said_who_has_it(table: SessionTable) -> None:
    """The scheduler may have died with the word."""
    session = table.open(make_request())
    say(table, OURS, Row(session.attempt, 0, [5]))
    say(table, OTHER, Row(session.attempt, 1, [6]))
    assert list(session.output) == [5] and session.worker_id == OURS


def test_who_has_it_after_all_is_not_believed_in_part(table: SessionTable, recorder: Recorder) -> None:
    """An end may be among what was left out: its client would wait for ever."""
    session = placed(table)
    say(table, OTHER, Row(session.attempt, 0, [6], reason=STOP))
    session.on_placed(session.attempt, OTHER, 0)
    assert session.attempt == 2 and recorder.losses == [LossCause.OUTPUT_LOST]
    assert recorder.said[-2:] == [("cancel", 1), ("submit", 2, 0)]
    session.on_placed(session.attempt, OTHER, 0)
    say(table, OTHER, Row(session.attempt, 0, [6], reason=STOP))
    assert list(session.output) == [6] and len(recorder.ended) == 1


def test_what_is_left_out_is_told_once(table: SessionTable, caplog: pytest.LogCaptureFixture) -> None:
    session = placed(table)
    for number in range(3):
        say(table, OTHER, Row(session.attempt, number, [6]))
    assert [record.getMessage() for record in caplog.records] == [
        f"request r: leg 0 is worker {OURS}'s, and what worker {OTHER} says under that leg is left out; if this goes"
        " on, look for a second scheduler with `signalbox status`"
    ]


def test_what_a_prompt_found_is_known_without_the_scheduler_s_word(
    table: SessionTable, recorder: Recorder
) -> None:
    """A short request ends before that comes."""
    session = table.open(make_request())
    batch = make_batch(1, [Row(session.attempt, 0, [5], reason=STOP)])
    batch.found.add(attempt=session.attempt, num_cached_tokens=2)
    outputs.feed(batch, table, 1.0, OURS)
    assert [end.num_cached_tokens for end in recorder.ended] == [2]


def test_a_later_attempt_finds_its_own_tokens(table: SessionTable) -> None:
    session = placed(table)
    session.lose("gone", LossCause.OUTPUT_LOST)
    session.on_found(session.attempt, 2)
    assert session.num_cached_tokens == 0
