"""A request survives all losses but the crashes that it may have caused (docs/liveness.md, E11, F3, F4)."""

from __future__ import annotations

import asyncio

import pytest

from frontend_svc.links.submission import make_submit
from frontend_svc.requests.request import Sampling
from frontend_svc.requests.sessions.losses import MAX_WITHOUT_TOKEN
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from signalbox.errors import InternalError, ResourceExhaustedError, UnavailableError
from signalbox.protocol.enums import FinishReason, LossCause
from signalbox.v1 import to_frontend_pb2
from tests.frontend_svc.helpers import make_logprobs, until
from tests.frontend_svc.requests.test_sessions import Recorder, make_request, make_table, outputs, read_all


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def table(recorder: Recorder) -> SessionTable:
    return make_table(recorder, replay_limit=1)


@pytest.fixture
def session(table: SessionTable) -> Session:
    return table.open(make_request())


def lose(session: Session, cause: LossCause) -> None:
    session.on_lost(session.attempt, "its worker died", cause)


def test_the_causes_are_those_of_the_protocol() -> None:
    ours = {f"LOSS_CAUSE_{cause.name}": cause.value for cause in LossCause}
    assert ours == dict(to_frontend_pb2.LossCause.items())
    assert LossCause(99) is LossCause.UNSPECIFIED


async def test_a_second_crash_without_a_token_between_ends_it(session: Session, recorder: Recorder) -> None:
    """E11, S4: one crash is forgiven; the second is its own."""
    lose(session, LossCause.CRASH)
    assert not session.ended
    assert make_submit(session, 1.0).submit.meta.num_crashes == 1
    lose(session, LossCause.CRASH)
    with pytest.raises(InternalError, match=r"2 workers, one after the other, crashed .*its worker died"):
        await session.wait_accepted()
    assert len(recorder.ended) == 1


def test_a_new_token_forgives_all_crashes(session: Session) -> None:
    """E11: a crash loop is counted, not a life."""
    for number in range(20):
        lose(session, LossCause.CRASH)
        assert make_submit(session, 1.0).submit.meta.num_crashes == 1
        outputs(session, number, 7)
        meta = make_submit(session, 1.0).submit.meta
        assert (meta.num_crashes, meta.num_losses) == (0, number + 1)
    assert not session.ended


@pytest.mark.parametrize("cause", [cause for cause in LossCause if cause is not LossCause.CRASH])
async def test_other_losses_do_not_count(session: Session, recorder: Recorder, cause: LossCause) -> None:
    """E11: kills from outside, drains and schedulers that restart are nobody's fault. Only a loop has an end."""
    lose(session, LossCause.CRASH)
    for _ in range(MAX_WITHOUT_TOKEN - 2):
        lose(session, cause)
    assert not session.ended
    assert make_submit(session, 1.0).submit.meta.num_losses == MAX_WITHOUT_TOKEN - 1
    lose(session, cause)
    with pytest.raises(UnavailableError, match=f"{MAX_WITHOUT_TOKEN} times"):
        await session.wait_accepted()
    assert recorder.losses == [LossCause.CRASH] + [cause] * (MAX_WITHOUT_TOKEN - 1)


async def test_a_hole_is_a_loss_of_the_attempt(session: Session, recorder: Recorder) -> None:
    """F4: the request goes on where its output stands."""
    outputs(session, 0, 10)
    outputs(session, 2, 12)
    assert recorder.said[-2:] == [("cancel", 1), ("submit", 2, 1)]
    outputs(session, 1, 11, 12)
    session.on_finished(2, FinishReason.LENGTH, 3, None)
    token_ids, _, finished = await read_all(session)
    assert (token_ids, finished.reason) == ([10, 11, 12], FinishReason.LENGTH)
    assert recorder.losses == [LossCause.OUTPUT_LOST]


def test_an_end_behind_missing_output_is_a_hole(session: Session, recorder: Recorder) -> None:
    """F4."""
    session.on_finished(1, FinishReason.STOP, 2, None)
    assert recorder.said[-2:] == [("cancel", 1), ("submit", 2, 0)]


def test_missing_logprobs_of_the_prompt_are_a_hole(table: SessionTable, recorder: Recorder) -> None:
    """F4: they travel in chunks, and the first ones may stand in a log that was given up."""
    session = table.open(make_request(sampling=Sampling(prompt_logprobs=1)))
    session.on_prompt_logprobs(1, 2, [make_logprobs(3)])
    assert recorder.said[-2:] == [("cancel", 1), ("submit", 2, 0)]
    outputs(session, 0, 10)
    assert recorder.said[-2:] == [("cancel", 2), ("submit", 3, 0)]
    session.on_prompt_logprobs(3, 1, [make_logprobs(3), make_logprobs(4)])
    outputs(session, 0, 10)
    assert not session.ended
    assert recorder.said[-1] == ("submit", 3, 0)


def test_missing_output_may_be_of_whoever_is_not_known_to_be_elsewhere(
    table: SessionTable, recorder: Recorder
) -> None:
    """F4: `placed` of an adopted request may have gone with the old scheduler."""
    here, elsewhere, unknown, unsent = (table.open(make_request(name)) for name in "abcd")
    for session in (here, elsewhere, unknown):
        session.submitted = True
    here.on_placed(here.attempt, "w1", 0)
    elsewhere.on_placed(elsewhere.attempt, "w2", 0)
    recorder.said.clear()
    table.restart_all("w1", "output is missing")
    assert [kind for kind, *_ in recorder.said] == ["cancel", "submit"] * 2
    assert (elsewhere.attempt, unsent.attempt) == (2, 4)
    assert min(here.attempt, unknown.attempt) > 4


def test_output_tells_where_a_request_is(session: Session) -> None:
    """Nobody tells the frontend where an adopted request runs."""
    session.hear(0, "w3")
    assert session.worker_id == "w3"


async def test_a_limit_delays_what_was_accepted_once(session: Session, recorder: Recorder) -> None:
    """F3: and it is one loss, however often it is refused."""
    lose(session, LossCause.WORKER_GONE)
    session.submitted = True
    session.on_rejected(2, ResourceExhaustedError("max_waiting_bytes", retry_after_s=0.02))
    assert (session.ended, session.attempt, session.submitted) == (False, 2, False)
    await until(lambda: session.attempt == 3)
    assert recorder.said[-1] == ("submit", 3, 0)
    assert make_submit(session, 1.0).submit.meta.num_losses == 1
    session.on_rejected(3, UnavailableError("no worker serves it"))
    with pytest.raises(UnavailableError):
        await session.wait_accepted()


async def test_a_delayed_attempt_of_what_has_ended_is_none(session: Session, recorder: Recorder) -> None:
    """F3."""
    lose(session, LossCause.WORKER_GONE)
    session.on_rejected(2, ResourceExhaustedError("max_waiting_bytes", retry_after_s=0.01))
    session.cancel()
    await asyncio.sleep(0.05)
    assert recorder.said[-2:] == [("submit", 2, 0), ("cancel", 2)]


async def test_a_limit_ends_a_first_attempt(session: Session) -> None:
    session.on_rejected(1, ResourceExhaustedError("the queue is full", retry_after_s=0.01))
    with pytest.raises(ResourceExhaustedError, match="queue"):
        await session.wait_accepted()
