"""Settings of simulated failures that cannot mean anything are refused."""

from __future__ import annotations

import pytest

from signalbox.errors import StartupError
from signalbox.runtime.config import load
from worker_svc.config import WorkerSettings


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--sim-fail-token=1"], "--sim-fail-token is for the sim runner"),
        (["--sim-fail-step=1"], "--sim-fail-step is for the sim runner"),
        (["--sim-break-step=1"], "--sim-break-step is for the sim runner"),
        (["--runner=sim", "--sim-hang-token=1"], "--sim-hang-token and --sim-hang-ms need each other"),
        (["--runner=sim", "--sim-hang-ms=1"], "--sim-hang-token and --sim-hang-ms need each other"),
        (["--runner=sim", "--sim-vocab-size=9", "--sim-fail-token=9"], "--sim-fail-token names no token"),
        (["--runner=sim", "--sim-fail-step=0"], "--sim-fail-step"),
        (["--sim-nan-token=1"], "--sim-nan-token is for the sim runner"),
        (["--sim-crash-token=1"], "--sim-crash-token is for the sim runner"),
        (["--runner=sim", "--sim-vocab-size=9", "--sim-crash-token=9"], "--sim-crash-token names no token"),
    ],
)
def test_a_failure_that_cannot_come_is_refused(flags: list[str], sentence: str) -> None:
    with pytest.raises(StartupError) as error:
        load(WorkerSettings, flags)
    assert sentence in error.value.message


def test_failures_that_can_come_are_taken() -> None:
    settings = load(WorkerSettings, ["--runner=sim", "--sim-fail-token=8", "--sim-vocab-size=9"])
    assert settings.sim_fail_token == 8
