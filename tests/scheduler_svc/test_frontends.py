"""What frontends wait for, by their own word."""

from __future__ import annotations

from scheduler_svc.core.frontends import Frontends
from scheduler_svc.core.request import RequestKey

KEY = RequestKey("f", "a")


def test_a_frontend_wants_what_it_named_and_has_not_withdrawn() -> None:
    frontends = Frontends(grace_s=1.0)
    assert frontends.may_want(KEY, 1), "it may still say hello"
    frontends.attach("f", [("a", 2)], [])
    assert frontends.may_want(KEY, 2) and not frontends.may_want(KEY, 1)
    frontends.withdraw(KEY, 2)
    assert not frontends.may_want(KEY, 2)


def test_a_frontend_that_is_away_may_want_anything_until_its_grace_time_has_passed() -> None:
    frontends = Frontends(grace_s=1.0)
    frontends.attach("f", [], [])
    frontends.detach("f", 5.0)
    frontends.expect("g", 5.5)
    assert frontends.may_want(KEY, 1)
    assert frontends.take_gone(5.9) == [] and frontends.take_gone(6.0) == ["f"]
    frontends.attach("g", [], [])
    assert frontends.take_gone(99.0) == [], "one that is there is never gone"


def test_a_pause_is_remembered_for_a_request_that_nobody_knows_yet() -> None:
    frontends = Frontends(grace_s=1.0)
    frontends.attach("f", [("a", 1)], [("a", 1)])
    assert frontends.is_paused(KEY, 1) and not frontends.is_paused(KEY, 2)
    frontends.set_paused(KEY, 1, False)
    assert not frontends.is_paused(KEY, 1)
