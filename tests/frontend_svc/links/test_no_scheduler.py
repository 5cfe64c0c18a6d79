"""What becomes of requests while there is no scheduler (docs/liveness.md, F1, F2, A6)."""

from __future__ import annotations

import asyncio

from frontend_svc.links.orders import Action, Order, Orders
from frontend_svc.requests.sessions.session import Session
from frontend_svc.server import Frontend
from signalbox.errors import UnavailableError
from signalbox.v1 import worker_pb2
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import until
from tests.frontend_svc.links.test_heartbeats import place
from tests.frontend_svc.requests.test_sessions import Recorder, make_request, make_table
from tests.frontend_svc.scripted_cluster import Cluster, Row

CANCEL, FINISH, PAUSE, UNPAUSE = Action


async def leave_alone(frontend: Frontend, cluster: Cluster) -> None:
    """There is no scheduler any more."""
    await cluster.scheduler.server.grpc.stop(0)
    await until(lambda: not frontend.scheduler.connected)


async def test_what_was_accepted_ends_with_one_error(start: Start, cluster: Cluster) -> None:
    """F2, and the worker hears of it (A6). Whoever gets tokens goes on."""
    frontend = await start(key_file=None, lost_scheduler_s=0.6, queue_s=0.1)
    starving, fed = [await place(frontend, cluster, name) for name in "ab"]
    await leave_alone(frontend, cluster)
    for number in range(10):
        cluster.worker.emit(Row(fed.attempt, number, [5]))
        await asyncio.sleep(0.1)
        await fed.next_delta()
    assert not fed.ended
    assert starving.ended
    await until(lambda: (starving.attempt, CANCEL) in cluster.worker.orders)
    delta = await starving.next_delta()
    assert delta.finished is not None
    assert isinstance(delta.finished.error, UnavailableError)
    assert "no scheduler for 0.6 s" in delta.finished.error.message
    await until(lambda: fed.ended)


async def test_a_lost_attempt_waits_as_long_as_a_running_one(start: Start, cluster: Cluster) -> None:
    """F2: it is not treated worse than what runs beside it; one that was never submitted is (F1)."""
    frontend = await start(key_file=None, lost_scheduler_s=1.0, queue_s=0.1)
    lost = await place(frontend, cluster, "lost")
    await leave_alone(frontend, cluster)
    cluster.worker.emit(Row(lost.attempt, 3, [5]))  # behind a hole
    await until(lambda: lost.attempt > 1)
    new = frontend.table.open(make_request("new"))
    await until(lambda: new.ended)
    assert not lost.ended
    await until(lambda: lost.ended)


async def test_workers_hear_what_clients_want(frontend: Frontend, cluster: Cluster) -> None:
    """A6: at once, and as a whole on each new stream of that time."""
    slow, caught_up, left, stopped, calm = [await place(frontend, cluster, name) for name in "abcde"]
    await leave_alone(frontend, cluster)
    cluster.worker.emit(*(Row(each.attempt, 0, range(65)) for each in (slow, caught_up)))
    await until(lambda: cluster.worker.orders == [(slow.attempt, PAUSE), (caught_up.attempt, PAUSE)])
    await caught_up.next_delta()
    left.cancel()
    frontend.table.operations.finish(stopped)
    said = [(caught_up.attempt, UNPAUSE), (left.attempt, CANCEL), (stopped.attempt, FINISH)]
    await until(lambda: cluster.worker.orders[2:] == said)
    cluster.worker.orders.clear()
    cluster.worker.break_link()
    await until(lambda: len(cluster.worker.hellos) == 2)
    assert sorted(cluster.worker.orders) == sorted([*said, (slow.attempt, PAUSE)])
    assert not calm.ended


async def test_with_a_scheduler_workers_are_told_nothing(frontend: Frontend, cluster: Cluster) -> None:
    """A6: it is the scheduler's to say, again and as a whole in each hello."""
    session = await place(frontend, cluster)
    cluster.worker.emit(Row(session.attempt, 0, range(65)))
    await cluster.scheduler.next("pause")
    cluster.scheduler.break_link()
    await until(lambda: len(cluster.scheduler.hellos) == 2)
    assert [ref.attempt for ref in cluster.scheduler.hellos[1].paused] == [session.attempt]
    await until(lambda: frontend.scheduler.connected)
    # In between there was none.
    await until(lambda: cluster.worker.orders == [(session.attempt, PAUSE)])
    cluster.worker.orders.clear()
    await session.next_delta()
    await cluster.scheduler.next("unpause")
    session.cancel()
    await cluster.scheduler.next("cancel")
    await asyncio.sleep(0.1)
    assert cluster.worker.orders == []


async def test_pauses_without_a_scheduler_do_not_pile_up(frontend: Frontend, cluster: Cluster) -> None:
    """W1: the next hello says how it stands."""
    session = await place(frontend, cluster)
    await leave_alone(frontend, cluster)
    for number in range(20):
        cluster.worker.emit(Row(session.attempt, number * 65, range(65)))
        await until(lambda: session.paused_s is not None)
        await session.next_delta()
    assert frontend.scheduler._queue.is_empty


class Told:
    """Orders with a clock and an ear."""

    def __init__(self) -> None:
        self.now = 100.0
        self.heard: list[tuple[str, Order]] = []
        self.orders = Orders(lambda: self.now, recent_s=2.0)
        self.orders.connect(lambda worker_id, order: self.heard.append((worker_id, order)))
        self.session: Session = make_table(Recorder()).open(make_request())
        self.session.legs.name(0, "w")


def test_what_a_scheduler_may_not_have_taken_is_said_again() -> None:
    """A6: what was said to one that fell silent, but not what is long done."""
    told = Told()
    told.orders.say(told.session, CANCEL)
    told.now += 3
    told.orders.say(told.session, FINISH)
    told.now += 1
    told.orders.begin()
    assert told.orders.whole("w", []) == [Order(1, FINISH)]
    assert told.orders.whole("other", []) == []
    assert told.heard == []
    told.orders.say(told.session, CANCEL)
    assert told.heard == [("w", Order(1, CANCEL))]
    told.now += 60
    told.orders.end()
    told.now += 1
    told.orders.begin()
    assert told.orders.whole("w", []) == [Order(1, FINISH), Order(1, CANCEL)]
    told.orders.end()
    told.now += 3
    told.orders.begin()
    assert told.orders.whole("w", []) == []


def test_whoever_was_paused_is_named_as_it_is_now() -> None:
    """A6: a worker may still know an older word."""
    told = Told()
    told.orders.begin()
    assert told.orders.whole("w", [told.session]) == []
    told.session.was_paused, told.session.paused_s = True, 1.0
    assert told.orders.whole("w", [told.session]) == [Order(1, PAUSE)]
    told.session.paused_s = None
    assert told.orders.whole("w", [told.session]) == [Order(1, UNPAUSE)]


def test_actions_are_those_of_the_protocol() -> None:
    ours = {f"ATTEMPT_ACTION_{action.name}": action.value for action in Action}
    assert ours | {"ATTEMPT_ACTION_UNSPECIFIED": 0} == dict(worker_pb2.AttemptAction.items())
