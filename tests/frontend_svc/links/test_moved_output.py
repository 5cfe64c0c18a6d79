"""Output of a request that goes from worker to worker: the highest leg that spoke counts, once it was named (HO10)."""

from __future__ import annotations

import asyncio

import pytest

from frontend_svc.links import outputs
from frontend_svc.links.orders import Action, Order, Orders
from frontend_svc.metrics import Metrics
from frontend_svc.requests.request import Sampling
from frontend_svc.requests.sessions.legs import MAX_WAITING
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from signalbox.protocol.enums import FinishReason, LossCause
from signalbox.telemetry import attributes as names
from signalbox.v1 import generation_pb2, worker_pb2
from tests.frontend_svc.helpers import make_logprobs
from tests.frontend_svc.requests.test_sessions import Recorder, make_request, make_table
from tests.frontend_svc.scripted_cluster import Row, make_batch
from tests.telemetry.recorder import Recorder as RecordingTracer

SOURCE, TARGET, THIRD = "source", "target", "third"
STOP = generation_pb2.FINISH_REASON_STOP


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def table(recorder: Recorder) -> SessionTable:
    return make_table(recorder)


@pytest.fixture
def session(table: SessionTable) -> Session:
    return placed(table)


def placed(table: SessionTable, sampling: Sampling | None = None) -> Session:
    """One that the source has, with two tokens, unless log-probabilities are asked for."""
    session = table.open(make_request(sampling=sampling or Sampling()))
    session.submitted = True
    session.on_placed(session.attempt, SOURCE, 0)
    if sampling is None:
        say(table, SOURCE, Row(session.attempt, 0, [10, 11]))
    return session


def say(table: SessionTable, worker_id: str, *rows: Row) -> None:
    outputs.feed(make_batch(1, rows), table, 1.0, worker_id)


def name(session: Session, leg: int, worker_id: str) -> None:
    """The scheduler's word."""
    session.on_placed(session.attempt, worker_id, 0, leg=leg)


def test_a_target_goes_on_behind_what_the_source_has_said(
    session: Session, table: SessionTable, recorder: Recorder
) -> None:
    """HO10, HO11."""
    name(session, 1, TARGET)
    assert session.worker_id == SOURCE, "named is not heard"
    say(table, SOURCE, Row(1, 2, [12]))
    say(table, TARGET, Row(1, 1, [11, 12], leg=1))
    say(table, TARGET, Row(1, 3, [13], leg=1, reason=STOP))
    assert list(session.output) == [10, 11, 12, 13]
    assert [(end.reason, end.num_output_tokens) for end in recorder.ended] == [(FinishReason.STOP, 4)]
    assert recorder.moved == [(TARGET, 1)] and recorder.losses == []


def test_a_lower_leg_says_nothing_more(session: Session, table: SessionTable, recorder: Recorder) -> None:
    """HO10: neither tokens, nor holes, nor an end; and it is no reason for a warning."""
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 2, [12], leg=1))
    say(table, SOURCE, Row(1, 3, [98], reason=STOP))
    say(table, SOURCE, Row(1, 50, [99]))
    say(table, SOURCE, Row(1, 3, error=generation_pb2.Error(code="internal"), reason=5))
    assert list(session.output) == [10, 11, 12] and session.attempt == 1 and not session.ended
    assert session.worker_id == TARGET


def test_repeated_output_makes_a_lower_leg_silent_too(session: Session, table: SessionTable) -> None:
    """HO10: a target that only repeats has spoken."""
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 0, [10, 11], leg=1))
    say(table, SOURCE, Row(1, 2, [99]))
    assert list(session.output) == [10, 11] and session.worker_id == TARGET


def test_a_leg_ahead_of_the_word_waits_for_it_in_order(
    session: Session, table: SessionTable, recorder: Recorder
) -> None:
    """HO10: tokens and the end."""
    say(table, TARGET, Row(1, 1, [11, 12], leg=1))
    say(table, TARGET, Row(1, 3, [13], leg=1, reason=STOP))
    assert list(session.output) == [10, 11] and not session.ended
    say(table, SOURCE, Row(1, 2, [12]))
    assert list(session.output) == [10, 11, 12], "the lower leg counts until then"
    name(session, 1, TARGET)
    assert list(session.output) == [10, 11, 12, 13] and len(recorder.ended) == 1
    assert recorder.moved == [(TARGET, 1)]


def test_legs_that_wait_are_taken_from_the_lowest_on(session: Session, table: SessionTable) -> None:
    """HO10: the third repeats nothing that was read of the second, whose word came late."""
    say(table, THIRD, Row(1, 3, [13], leg=2))
    say(table, TARGET, Row(1, 2, [12], leg=1))
    name(session, 2, THIRD)
    assert list(session.output) == [10, 11, 12, 13] and session.attempt == 1


def test_what_waits_of_a_worker_is_left_out_when_another_is_named(
    session: Session, table: SessionTable, caplog: pytest.LogCaptureFixture
) -> None:
    """HO10, R11."""
    say(table, THIRD, Row(1, 2, [99], leg=1, reason=STOP))
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 2, [12], leg=1))
    assert list(session.output) == [10, 11, 12] and not session.ended
    name(session, 1, THIRD)
    assert session.attempt == 2, "an end may be among what was left out"


def test_what_waits_is_bounded(
    session: Session, table: SessionTable, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """HO10, W1: beyond the bound R11 holds, and whoever is named after all is not believed in part."""
    for number in range(MAX_WAITING):
        say(table, TARGET, Row(1, 2 + number, [12], leg=1))
    table.check_integrity()
    assert session.legs.workers == {SOURCE}
    assert len(caplog.records) == 1
    say(table, SOURCE, Row(1, 2, [12]))
    assert session.attempt == 1 and list(session.output) == [10, 11, 12]
    name(session, 1, TARGET)
    assert session.attempt == 2 and recorder.losses == [LossCause.OUTPUT_LOST]
    name(session, 1, TARGET)
    say(table, TARGET, Row(2, 3, [13], leg=1, reason=STOP))
    assert list(session.output) == [10, 11, 12, 13] and session.ended


def test_legs_nobody_gave_do_not_pile_up(session: Session, table: SessionTable) -> None:
    """W1: a worker that makes legs up."""
    for leg in range(1, 3 * MAX_WAITING):
        say(table, THIRD, Row(1, 2, [99], leg=leg))
        if leg % 100 == 0:
            table.check_integrity()
    say(table, SOURCE, Row(1, 2, [12]))
    assert list(session.output) == [10, 11, 12]


def test_a_hand_off_that_failed_ahead_of_its_freeze_changes_nothing(
    session: Session, table: SessionTable, recorder: Recorder
) -> None:
    """HO8."""
    name(session, 1, TARGET)
    say(table, SOURCE, Row(1, 2, [12]))
    name(session, 2, THIRD)
    say(table, SOURCE, Row(1, 3, [13]))
    say(table, THIRD, Row(1, 4, [14], leg=2, reason=STOP))
    assert list(session.output) == [10, 11, 12, 13, 14] and session.ended
    assert recorder.moved == [(THIRD, 2)]


def test_a_source_that_goes_on_has_a_leg_of_its_own(
    session: Session, table: SessionTable, recorder: Recorder
) -> None:
    """HO2, HO8: the same worker speaks under both; it has moved nowhere."""
    name(session, 1, TARGET)
    name(session, 2, SOURCE)
    say(table, SOURCE, Row(1, 2, [12]))
    say(table, SOURCE, Row(1, 3, [13], leg=2))
    say(table, TARGET, Row(1, 4, [99], leg=1, reason=STOP))
    assert list(session.output) == [10, 11, 12, 13] and not session.ended
    assert recorder.moved == []


def test_a_new_attempt_begins_with_leg_0(session: Session, table: SessionTable) -> None:
    """HO2: legs are counted within an attempt."""
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 2, [12], leg=1))
    session.on_lost(1, "its worker died", LossCause.WORKER_GONE)
    session.on_placed(2, THIRD, 0)
    say(table, THIRD, Row(2, 3, [13], reason=STOP))
    assert list(session.output) == [10, 11, 12, 13] and session.ended


def test_a_leg_of_what_is_known_nowhere_is_heard(table: SessionTable, recorder: Recorder) -> None:
    """R11, HO10: all words may have died with a scheduler."""
    session = table.open(make_request())
    say(table, TARGET, Row(1, 0, [10], leg=3))
    assert list(session.output) == [10] and session.worker_id == TARGET
    name(session, 3, TARGET)
    name(session, 0, SOURCE)
    say(table, TARGET, Row(1, 1, [11], leg=3, reason=STOP))
    assert list(session.output) == [10, 11] and session.ended and recorder.moved == []


def test_hearing_a_leg_that_was_passed_over_is_no_move(table: SessionTable, recorder: Recorder) -> None:
    """HO10: only the target was named, and the source speaks first."""
    session = table.open(make_request())
    name(session, 1, TARGET)
    say(table, SOURCE, Row(1, 0, [10]))
    assert session.worker_id == SOURCE and recorder.moved == []
    say(table, TARGET, Row(1, 1, [11], leg=1))
    assert list(session.output) == [10, 11] and recorder.moved == [(TARGET, 1)]


def test_what_the_cache_saved_at_the_start_is_told(session: Session, table: SessionTable) -> None:
    """HO10: a target's word says nothing of it."""
    session.on_placed(1, SOURCE, 2)
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 2, reason=STOP, leg=1))
    finished = session.take_delta().finished
    assert finished is not None and finished.num_cached_tokens == 2


def test_a_scheduler_that_knows_less_names_a_leg_again(session: Session, table: SessionTable) -> None:
    """HO9: a new one has not heard of a hand-off that ended ahead of its freeze, and gives its leg to another."""
    name(session, 1, TARGET)
    name(session, 1, THIRD)
    say(table, THIRD, Row(1, 2, [12], leg=1))
    assert list(session.output) == [10, 11, 12]


def test_log_probabilities_are_skipped_with_their_tokens(table: SessionTable) -> None:
    """HO11."""
    session = placed(table, Sampling(logprobs=0))
    first, second, third = (make_logprobs(token) for token in (10, 11, 12))
    say(table, SOURCE, Row(1, 0, [10], logprobs=[first]))
    say(table, SOURCE, Row(1, 1, [11], logprobs=[second]))
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 1, [11, 12], logprobs=[second, third], leg=1, reason=STOP))
    delta = session.take_delta()
    assert delta.token_ids == [10, 11, 12] and delta.logprobs == [first, second, third]


@pytest.mark.parametrize("repeated", [(1, 2), (2, 3), (1, 3)])
@pytest.mark.parametrize("is_named_late", [False, True])
def test_log_probabilities_of_the_prompt_may_be_repeated(
    table: SessionTable, recorder: Recorder, repeated: tuple[int, int], is_named_late: bool
) -> None:
    """HO11: whole or in part, and behind their end; they wait like all else."""
    session = placed(table, Sampling(prompt_logprobs=1))
    first, second = make_logprobs(2), make_logprobs(3)
    say(table, SOURCE, Row(1, 0, prompt_logprobs=[first]))
    say(table, SOURCE, Row(1, 0, prompt_logprobs=[second], prompt_start=2))
    start, end = repeated
    if not is_named_late:
        name(session, 1, TARGET)
    again = [first, second][start - 1 : end - 1]
    say(table, TARGET, Row(1, 0, prompt_logprobs=again, prompt_start=start, leg=1))
    say(table, TARGET, Row(1, 0, [10], leg=1, reason=STOP))
    name(session, 1, TARGET)
    delta = session.take_delta()
    assert list(delta.prompt_logprobs) == [first, second] and delta.token_ids == [10]
    assert recorder.losses == [] and session.attempt == 1


def test_log_probabilities_of_the_prompt_of_a_lower_leg_are_left_out(
    table: SessionTable, recorder: Recorder
) -> None:
    """HO10."""
    session = placed(table, Sampling(prompt_logprobs=1))
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 0, prompt_logprobs=[make_logprobs(2)], leg=1))
    say(table, SOURCE, Row(1, 0, prompt_logprobs=[make_logprobs(9)], prompt_start=2))
    say(table, TARGET, Row(1, 0, prompt_logprobs=[make_logprobs(3)], prompt_start=2, leg=1))
    say(table, TARGET, Row(1, 0, [10], leg=1, reason=STOP))
    assert list(session.take_delta().prompt_logprobs) == [make_logprobs(2), make_logprobs(3)]


def test_a_worker_that_says_no_leg_says_0(session: Session, table: SessionTable) -> None:
    """HO10, R10: one of the release before."""
    batch = make_batch(1, [Row(1, 2, [12], reason=STOP)])
    assert batch.legs == b"" and batch.finished[0].leg == 0
    outputs.feed(batch, table, 1.0, SOURCE)
    assert list(session.output) == [10, 11, 12] and session.ended


@pytest.mark.parametrize("legs", [b"\0\0\0", b"\0\0\0\0" * 3])
def test_a_column_of_legs_that_does_not_fit_is_a_broken_message(legs: bytes) -> None:
    """R11: its worker is told to be, and nobody's token counts under a leg that is not its own."""
    batch = make_batch(1, [Row(1, 0, [5], leg=1), Row(2, 0, [6], leg=1)])
    assert list(outputs.read_legs(batch)) == [1, 1]
    batch.legs = legs
    with pytest.raises(ValueError):
        list(outputs.read_legs(batch))
    assert next(iter(outputs.read_legs(worker_pb2.OutputBatch()))) == 0


# -- who is asked about, and told --


def test_both_ends_of_a_hand_off_are_asked_about(
    session: Session, table: SessionTable, recorder: Recorder
) -> None:
    """J2: either may have ended it unread. Whose leg is over has not."""
    for worker_id in (SOURCE, TARGET):
        recorder.said.clear()
        name(session, 1, TARGET)
        table.check_all(worker_id, "another process")
        assert recorder.said == [("check", 1, worker_id, "another process")]
    say(table, TARGET, Row(1, 2, [12], leg=1))
    recorder.said.clear()
    table.check_all(SOURCE, "another process")
    assert recorder.said == [], "what its new leg is elsewhere has nothing to lose there"
    table.check_all(TARGET, "")
    assert recorder.said == [("check", 1, TARGET, "")]


def test_a_worker_whose_leg_waits_is_asked_about(
    session: Session, table: SessionTable, recorder: Recorder
) -> None:
    """J2, HO10: it may have gone from the directory with the scheduler's word, and have the end with it."""
    say(table, TARGET, Row(1, 2, [12], leg=1))
    recorder.said.clear()
    table.check_all(TARGET, "")
    assert recorder.said == [("check", 1, TARGET, "")]
    session.on_lost(1, "nobody has it", LossCause.UNKNOWN)
    name(session, 0, SOURCE)
    say(table, SOURCE, Row(2, 2, [12], reason=STOP))
    assert list(session.output) == [10, 11, 12] and session.ended


def test_whoever_has_the_leg_in_force_is_asked_about_where_only_the_next_is_known(
    table: SessionTable, recorder: Recorder
) -> None:
    """J2: a new scheduler has told of the target alone."""
    session = table.open(make_request())
    session.submitted = True
    name(session, 1, TARGET)
    recorder.said.clear()
    table.check_all(SOURCE, "another process")
    assert recorder.said == [("check", 1, SOURCE, "another process")]


def test_missing_output_of_the_target_may_be_of_what_was_named_to_it(
    session: Session, table: SessionTable
) -> None:
    """F4."""
    name(session, 1, TARGET)
    table.restart_all(TARGET, "output is missing")
    assert session.attempt == 2
    name(session, 0, SOURCE)
    table.restart_all(TARGET, "output is missing")
    assert session.attempt == 2


def test_a_target_out_of_reach_costs_what_has_come_to_a_standstill(
    table: SessionTable, recorder: Recorder
) -> None:
    """E6: what still comes from the source goes on there."""
    now = 100.0
    table.clock = lambda: now
    goes_on, stands, elsewhere = (table.open(make_request(each)) for each in "abc")
    for session in (goes_on, stands, elsewhere):
        session.submitted = True
        name(session, 0, SOURCE)
        outputs.feed(make_batch(1, [Row(session.attempt, 0, [10])]), table, now, SOURCE)
    name(goes_on, 1, TARGET)
    name(stands, 1, TARGET)
    now = 109.0
    outputs.feed(make_batch(1, [Row(goes_on.attempt, 1, [11])]), table, now, SOURCE)
    table.leave(TARGET, "out of reach", 5.0)
    assert [session.losses.num_losses for session in (goes_on, stands, elsewhere)] == [0, 1, 0]
    table.leave(SOURCE, "out of reach", 5.0)
    assert [session.losses.num_losses for session in (goes_on, stands, elsewhere)] == [1, 1, 1]


def test_without_a_scheduler_both_ends_are_told(session: Session, table: SessionTable) -> None:
    """A6."""
    heard: list[tuple[str, Order]] = []
    orders = Orders(lambda: 1.0, recent_s=2.0)
    orders.connect(lambda worker_id, order: heard.append((worker_id, order)))
    orders.begin()
    orders.say(session, Action.PAUSE)
    name(session, 1, TARGET)
    orders.say(session, Action.CANCEL)
    say(table, TARGET, Row(1, 2, [12], leg=1))
    orders.say(session, Action.UNPAUSE)
    assert [worker_id for worker_id, _ in heard] == [SOURCE, "", TARGET]
    assert orders.whole(TARGET, []) == orders.whole(SOURCE, []) == [Order(1, Action.CANCEL)]


async def test_a_loss_in_what_waited_leaves_the_next_attempt_alone(table: SessionTable) -> None:
    """HO10: a hole among it, and more behind that."""
    session = placed(table)
    say(table, TARGET, Row(1, 7, [99], leg=1))
    say(table, TARGET, Row(1, 8, [98], leg=1, reason=STOP))
    name(session, 1, TARGET)
    assert session.attempt == 2 and session.worker_id == "" and not session.ended
    await asyncio.sleep(0)
    name(session, 0, SOURCE)
    say(table, SOURCE, Row(2, 2, [12], reason=STOP))
    assert list(session.output) == [10, 11, 12]


def test_a_trace_tells_of_a_move(table: SessionTable, recorder: Recorder) -> None:
    """HO10."""
    tracer = RecordingTracer()
    span = tracer.start("completion", "", "", 0.0, is_entry=True)
    assert span is not None
    session = table.open(make_request(), span=span)
    name(session, 0, SOURCE)
    name(session, 1, TARGET)
    say(table, TARGET, Row(1, 0, [10], leg=1))
    said = {names.MOVE_SOURCE: SOURCE, names.MOVE_TARGET: TARGET, names.MOVE_LEG: 1}
    assert span.events == [(names.EVENT_MOVED, 1.0, said)]


def test_moves_are_counted() -> None:
    """HO10."""
    metrics = Metrics()
    table = SessionTable(
        Recorder(), metrics, replay_limit=1, max_backlog_tokens=8, max_open_requests=9, max_open_bytes=1 << 20
    )
    table.clock = lambda: 1.0
    session = table.open(make_request())
    for leg, worker_id in enumerate((SOURCE, TARGET, SOURCE, SOURCE)):
        name(session, leg, worker_id)
        say(table, worker_id, Row(1, leg, [10], leg=leg))
    assert b"signalbox_frontend_requests_moved_total 2.0" in metrics.render()[0]
