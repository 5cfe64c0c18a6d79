"""One terminal event per request, whatever comes in which order; losses go on where the output stood."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from frontend_svc.links.submission import make_ref, make_submit
from frontend_svc.requests.events import Finished
from frontend_svc.requests.request import CheckedRequest, FieldNames, Sampling
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from frontend_svc.text.text_stream import TextStream
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import (
    CancelledError,
    DuplicateRequestError,
    RequestTooLargeError,
    ResourceExhaustedError,
    UnavailableError,
)
from signalbox.protocol.enums import FinishReason, LossCause
from signalbox.v1 import generation_pb2 as generation
from tests.frontend_svc.helpers import character_ids

PROMPT = [1, 2, 3]
GONE = LossCause.WORKER_GONE


class Recorder:
    """The `Operations` and the `Observer`."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.ended: list[Finished] = []
        self.losses: list[LossCause] = []
        self.moves: list[str] = []
        """Identities under which outputs went on."""
        self.moved: list[tuple[str, int]] = []
        """Where requests went, and under which leg."""

    def submit(self, session: Session) -> None:
        self.said.append(("submit", session.attempt, len(session.output)))

    def cancel(self, session: Session) -> None:
        self.said.append(("cancel", session.attempt))

    def finish(self, session: Session) -> None:
        self.said.append(("finish", session.attempt))

    def pause(self, session: Session) -> None:
        self.said.append(("pause", session.attempt))

    def unpause(self, session: Session) -> None:
        self.said.append(("unpause", session.attempt))

    def check(self, session: Session, worker_id: str, worker_instance: str) -> None:
        self.said.append(("check", session.attempt, worker_id, worker_instance))

    def on_output(self, session: Session, num_tokens: int, now: float) -> None:
        pass

    def on_delivered(self, seconds: float) -> None:
        pass

    def on_lost(self, cause: LossCause) -> None:
        self.losses.append(cause)

    def on_other_identity(self, session: Session, identity: str) -> None:
        self.moves.append(identity)

    def on_moved(self, session: Session) -> None:
        self.moved.append((session.worker_id, session.legs.current))

    def on_end(self, session: Session, finished: Finished) -> None:
        self.ended.append(finished)


def make_table(
    recorder: Recorder, replay_limit: int = 3, max_open_requests: int = 100, max_open_bytes: int = 1 << 20
) -> SessionTable:
    return SessionTable(
        recorder,
        recorder,
        replay_limit=replay_limit,
        max_backlog_tokens=8,
        max_open_requests=max_open_requests,
        max_open_bytes=max_open_bytes,
        clock=lambda: 1.0,
    )


def make_request(request_id: str = "r", **changes: Any) -> CheckedRequest:
    request = CheckedRequest(
        request_id=request_id,
        model="toy",
        prompt=array("i", PROMPT).tobytes(),
        num_prompt_tokens=len(PROMPT),
        max_tokens=100,
        seed=7,
        sampling=Sampling(),
    )
    return replace(request, **changes)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def table(recorder: Recorder) -> SessionTable:
    return make_table(recorder)


@pytest.fixture
def session(table: SessionTable) -> Session:
    return table.open(make_request())


def outputs(session: Session, start: int, *token_ids: int, attempt: int | None = None) -> None:
    session.on_outputs(session.attempt if attempt is None else attempt, start, token_ids, (), 1.0)


async def read_all(session: Session) -> tuple[list[int], str, Finished]:
    token_ids, text = [], ""
    while True:
        delta = await session.next_delta()
        token_ids += delta.token_ids
        text += delta.text
        if delta.finished:
            return token_ids, text, delta.finished


async def test_output_and_end(session: Session, recorder: Recorder, table: SessionTable) -> None:
    """Z1."""
    session.on_placed(1, "w", num_cached_tokens=2)
    await session.wait_accepted()
    outputs(session, 0, 10)
    outputs(session, 1, 11, 12)
    session.on_finished(1, FinishReason.STOP, 3, None)
    token_ids, _, finished = await read_all(session)
    assert token_ids == [10, 11, 12]
    assert finished == Finished(FinishReason.STOP, 3, 3, 2)
    assert recorder.said == [("submit", 1, 0)]
    assert len(table) == 0


async def test_output_of_several_steps_joins_up(session: Session) -> None:
    outputs(session, 0, 10)
    outputs(session, 1, 11)
    assert (await session.next_delta()).token_ids == [10, 11]


async def test_a_loss_goes_on_behind_the_output_so_far(session: Session, recorder: Recorder) -> None:
    """Z1, M2."""
    outputs(session, 0, 10, 11)
    session.on_lost(1, "its worker died", GONE)
    assert recorder.said[-1] == ("submit", 2, 2)
    submit = make_submit(session, session.arrival_s).submit
    payload = generation.RequestPayload.FromString(submit.payload)
    assert list(array("i", payload.token_ids)) == [*PROMPT, 10, 11]
    assert payload.num_prior_output_tokens == submit.meta.num_prior_output_tokens == 2
    assert (submit.meta.num_prompt_tokens, submit.meta.max_tokens, payload.sampling.seed) == (3, 100, 7)
    outputs(session, 2, 12)
    session.on_finished(2, FinishReason.LENGTH, 3, None)
    assert (await read_all(session))[0] == [10, 11, 12]


async def test_older_attempts_are_dropped(session: Session, table: SessionTable) -> None:
    """I1."""
    session.on_lost(1, "its worker died", GONE)
    assert table.by_attempt(1) is None
    outputs(session, 0, 99, attempt=1)
    session.on_finished(1, FinishReason.STOP, 1, None)
    session.on_rejected(1, UnavailableError("no"))
    session.on_lost(1, "again", GONE)
    assert not session.ended
    assert session.attempt == 2
    assert len(session.output) == 0


async def test_a_replaced_worker_is_asked_about_whoever_may_have_been_there(
    session: Session, recorder: Recorder, table: SessionTable
) -> None:
    """J2: one whose placement is not known yet may have been placed there, and have ended."""
    recorder.said.clear()
    table.check_all("w1", "new")
    assert recorder.said == [], "nobody was told of it"
    session.submitted = True
    table.check_all("w1", "new")
    assert recorder.said == [("check", session.attempt, "w1", "new")]
    session.on_placed(session.attempt, "w1", 0)
    table.check_all("w2", "new")
    assert len(recorder.said) == 1
    table.check_all("w1", "newer")
    assert recorder.said[1:] == [("check", session.attempt, "w1", "newer")]


async def test_a_loss_of_nothing_but_the_end(table: SessionTable, recorder: Recorder) -> None:
    session = table.open(make_request(max_tokens=2))
    outputs(session, 0, 10, 11)
    session.on_lost(1, "its worker died", GONE)
    assert (await read_all(session))[2].reason is FinishReason.LENGTH
    assert recorder.said == [("submit", 1, 0)]


async def test_repeated_output_is_skipped(session: Session) -> None:
    outputs(session, 0, 10, 11)
    outputs(session, 0, 10, 11)
    outputs(session, 1, 11, 12)
    assert (await session.next_delta()).token_ids == [10, 11, 12]


async def test_a_stop_string_finishes_at_its_token(
    table: SessionTable, recorder: Recorder, tokenizer: Tokenizer
) -> None:
    """Z2."""
    sampling = Sampling(stop=("ST",))
    session = table.open(make_request(sampling=sampling), TextStream(tokenizer, sampling["stop"]))
    ids = character_ids(tokenizer, "abSTcd")
    outputs(session, 0, *ids[:3])
    outputs(session, 3, *ids[3:])
    assert recorder.said[-1] == ("finish", 1)
    session.on_finished(1, FinishReason.LENGTH, 6, None)
    token_ids, text, finished = await read_all(session)
    assert (token_ids, text) == (ids[:4], "ab")
    assert (finished.reason, finished.stop, finished.num_output_tokens) == (FinishReason.STOP, "ST", 4)


async def test_a_rejection_is_raised_before_acceptance(session: Session) -> None:
    """Z1."""
    session.on_rejected(1, ResourceExhaustedError("the queue is full"))
    with pytest.raises(ResourceExhaustedError, match="queue"):
        await session.wait_accepted()


async def test_a_slow_client_pauses_its_request(session: Session, recorder: Recorder) -> None:
    """R9, P1."""
    for index in range(12):
        outputs(session, index, index)
    assert recorder.said[1:] == [("pause", 1)]
    await session.next_delta()
    assert recorder.said[1:] == [("pause", 1), ("unpause", 1)]


async def test_a_stalled_client_is_cancelled(session: Session, table: SessionTable) -> None:
    outputs(session, 0, *range(12))
    table.cancel_stalled(now=5.0, stall_s=10)
    assert not session.ended
    table.cancel_stalled(now=12.0, stall_s=10)
    assert isinstance((await read_all(session))[2].error, CancelledError)


async def test_tokens_without_the_logprobs_asked_for_fail(table: SessionTable) -> None:
    session = table.open(make_request(sampling=Sampling(logprobs=1)))
    outputs(session, 0, 10)
    assert (await read_all(session))[2].reason is FinishReason.ERROR


async def test_ids_of_running_requests_are_taken(session: Session, table: SessionTable) -> None:
    with pytest.raises(DuplicateRequestError) as error:
        table.open(make_request(names=FieldNames(request_id="x-request-id")))
    assert error.value.field == "x-request-id"
    session.cancel()
    assert table.open(make_request()).attempt == 2


async def test_what_another_tenant_calls_its_requests_is_no_reason_to_refuse_one(
    table: SessionTable,
) -> None:
    """A refusal would tell one tenant what runs of another, and let it keep ids from it."""
    first, second, third = (table.open(make_request(tenant=tenant)) for tenant in ("a", "b", "c"))
    assert first.request_id == second.request_id == third.request_id
    names = [make_ref(session).request_id for session in (first, second, third)]
    assert names[0] == first.request_id and len(set(names)) == 3, "in the ring they are told apart"
    with pytest.raises(DuplicateRequestError):
        table.open(make_request(tenant="b"))
    table.check_integrity()
    first.cancel()
    again = table.open(make_request(tenant="a"))
    assert again.ring_name not in names[1:]
    for session in (second, third, again):
        session.cancel()
    table.check_integrity()
    assert not len(table)


async def test_open_requests_are_bounded(recorder: Recorder) -> None:
    table = make_table(recorder, max_open_requests=1)
    table.open(make_request("a"))
    words = "max_open_requests: 1 of 1 requests are open here; try again in 1 s"
    with pytest.raises(ResourceExhaustedError, match=words):
        table.open(make_request("b"))


async def test_open_prompts_are_bounded_in_bytes(recorder: Recorder) -> None:
    """W1: choices share their prompt; who is refused is told when to try again."""
    table = make_table(recorder, max_open_bytes=1000)
    shared = make_request("a", prompt=b"x" * 600)
    sessions = [table.open(shared), table.open(replace(shared, request_id="a.1", choice_index=1))]
    assert table.open_bytes.num_bytes == 600
    words = "max_open_bytes: open requests hold 600 of 1000 bytes here, and 401 more are asked for; try again in 1 s"
    with pytest.raises(ResourceExhaustedError, match=words):
        table.open(make_request("b", prompt=b"y" * 401))
    table.open(make_request("c", prompt=b"y" * 400)).cancel()
    sessions[0].cancel()
    assert table.open_bytes.num_bytes == 600
    sessions[1].cancel()
    assert table.open_bytes.num_bytes == 0
    with pytest.raises(RequestTooLargeError, match="1001 bytes"):
        table.open(make_request("d", prompt=b"y" * 1001))
    assert (len(table), table.open_bytes.num_bytes) == (0, 0)


class AnyOrder(RuleBasedStateMachine):
    """Events for attempts that are current, older or not minted yet, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder()
        self.table = make_table(self.recorder, replay_limit=2)
        self.session = self.table.open(make_request(max_tokens=6))
        self.truth: list[int] = []

    attempts = st.integers(1, 4)

    @rule(attempt=attempts)
    def place(self, attempt: int) -> None:
        self.session.on_placed(attempt, "w", 1)

    @rule(attempt=attempts, back=st.integers(0, 2), count=st.integers(1, 3))
    def output(self, attempt: int, back: int, count: int) -> None:
        """Tokens are their own positions, so that a repetition is right and a hole would show."""
        start = max(0, len(self.session.output) - back)
        self.session.on_outputs(attempt, start, tuple(range(start, start + count)), (), 1.0)

    @rule(attempt=attempts)
    def hole(self, attempt: int) -> None:
        self.session.on_outputs(attempt, len(self.session.output) + 1, (0,), (), 1.0)

    @rule(attempt=attempts, reason=st.sampled_from(FinishReason))
    def finish(self, attempt: int, reason: FinishReason) -> None:
        self.session.on_finished(attempt, reason, len(self.session.output), None)

    @rule(attempt=attempts)
    def reject(self, attempt: int) -> None:
        self.session.on_rejected(attempt, UnavailableError("no"))

    @rule(attempt=attempts)
    def lose(self, attempt: int) -> None:
        self.session.on_lost(attempt, "lost", GONE)

    @rule()
    def cancel(self) -> None:
        self.session.cancel()

    @invariant()
    def one_terminal_event_at_most(self) -> None:
        assert len(self.recorder.ended) == (1 if self.session.ended else 0)
        assert len(self.table) == (0 if self.session.ended else 1)
        self.table.check_integrity()

    @invariant()
    def output_has_no_hole(self) -> None:
        assert list(self.session.output) == list(range(len(self.session.output)))
        delta = self.session._deltas.take()
        self.truth += delta.token_ids
        assert self.truth == list(self.session.output)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


@settings(deadline=None)
@given(st.integers(1, 50))
def test_attempts_are_unique_and_rise(count: int) -> None:
    """I2."""
    table = make_table(Recorder())
    attempts = [table.open(make_request(f"r{i}")).attempt for i in range(count)]
    assert attempts == sorted(set(attempts))
