"""Requests that a frontend waits for and nobody knows."""

from __future__ import annotations

from scheduler_svc.core.missing import Missing
from tests.scheduler_svc.harness import make_request


def test_nothing_is_lost_before_all_workers_have_spoken() -> None:
    request, missing = make_request("a", 3), Missing()
    missing.add(request.key, 1)
    assert not missing.take_lost({}, have_all_spoken=False)
    assert missing.take_lost({}, have_all_spoken=True) == [(request.key, 1)]
    assert not missing.take_lost({}, have_all_spoken=True), "it is lost once"


def test_what_a_worker_says_hello_with_is_not_lost() -> None:
    request, missing = make_request("a", 3), Missing()
    missing.add(request.key, request.attempt)
    assert not missing.take_lost({request.key: request}, have_all_spoken=False)
    assert not missing.take_lost({}, have_all_spoken=True)


def test_an_older_attempt_does_not_stand_for_a_newer_one() -> None:
    request, missing = make_request("a", 3), Missing()
    missing.add(request.key, request.attempt + 1)
    assert missing.take_lost({request.key: request}, have_all_spoken=True)
