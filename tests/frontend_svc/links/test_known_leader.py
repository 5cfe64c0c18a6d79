"""Which scheduler a frontend leaves, by what workers say of whom they obey (T6)."""

from __future__ import annotations

import asyncio

import pytest

from frontend_svc.links.known_leader import LONGEST_STAY_S, MAX_INSTANCE_CHARS, KnownLeader
from signalbox.protocol.terms import MAX_TERM
from signalbox.v1 import worker_pb2
from worker_svc.links.output_logs import NOBODY, Obeyed, OutputLogs


def test_only_a_higher_term_of_another_process_is_newer() -> None:
    known = KnownLeader()
    assert not known.is_newer_than(0, "a")
    known.hear(5, "b")
    assert known.is_newer_than(4, "a") and not known.is_newer_than(5, "a")
    assert not known.is_newer_than(4, "b"), "its term has risen since it told us"
    assert not known.is_newer_than(4, ""), "it does not say who it is"
    known.hear(4, "c")
    assert (known.term, known.instance) == (5, "b")


@pytest.mark.parametrize(
    ("term", "instance"),
    [(MAX_TERM + 1, "b"), (2**64 - 1, "b"), (5, ""), (5, "b" * (MAX_INSTANCE_CHARS + 1))],
)
def test_what_cannot_be_is_not_heard(term: int, instance: str) -> None:
    """A worker that says anything must not keep a frontend from all schedulers."""
    known = KnownLeader()
    known.hear(term, instance)
    assert not known.is_newer_than(1, "a")


def test_who_finds_no_other_stays_for_longer_each_time() -> None:
    known = KnownLeader()
    known.hear(5, "b")
    assert [known.next_stay_s() for _ in range(8)] == [
        0.0,
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        LONGEST_STAY_S,
        LONGEST_STAY_S,
    ]
    known.hear(6, "c")
    assert known.next_stay_s() == 0.0


async def test_news_end_the_wait() -> None:
    known = KnownLeader()
    known.hear(3, "old")
    waiting = asyncio.create_task(known.until_newer_than(3, "old"))
    known.hear(4, "old")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    known.hear(5, "new")
    await asyncio.wait_for(waiting, 5)


def test_a_stream_says_once_whom_its_worker_obeys() -> None:
    """In its first message if there is somebody, else when there is; and it stays silent about nobody."""
    logs = OutputLogs("w", 1 << 20, 60.0)
    hello = worker_pb2.StreamOutputsRequest(frontend_instance="f")
    stream = logs.open(hello, 0.0, lambda: None)
    first = logs.next_message(stream)
    assert first is not None and not first.scheduler_epoch
    for term in (5, 6):
        logs.obey(Obeyed(term, f"s{term}"))
        told = logs.next_message(stream)
        assert told is not None and (told.scheduler_epoch, told.scheduler_instance) == (term, f"s{term}")
        assert logs.next_message(stream) is None
    late = logs.next_message(logs.open(hello, 0.0, lambda: None))
    assert late is not None and (late.worker_instance, late.scheduler_epoch) == ("w", 6)
    logs.obey(NOBODY)
    last = logs.next_message(logs.open(hello, 0.0, lambda: None))
    assert last is not None and not last.scheduler_epoch
