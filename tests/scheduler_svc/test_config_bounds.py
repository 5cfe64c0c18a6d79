"""The settings of scheduling are checked where they are declared, for the service as for whoever makes a core."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from scheduler_svc.config import SchedulerSettings
from scheduler_svc.core.state.config import SchedulerConfig
from signalbox.errors import StartupError
from signalbox.runtime.config import load


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_waiting_bytes", (1 << 20) - 1),
        ("max_hello_bytes", (1 << 20) - 1),
        ("max_model_len", 1),
        ("worker_silence_ms", 499),
        ("aging_s", -1),
        ("policy", "fifo"),
        ("lower_class_prefill_tokens", 3),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        SchedulerConfig.model_validate({name: value})
    flag = "--" + name.replace("_", "-")
    with pytest.raises(StartupError, match=flag):
        load(SchedulerSettings, [f"{flag}={value}"])


def test_a_removed_way_of_roles_is_refused_with_those_that_remain() -> None:
    """PD3"""
    with pytest.raises(StartupError, match=r"--prefill-hand-off.*use always, which is the default, or never"):
        load(SchedulerSettings, ["--prefill-hand-off=conditional"])
    assert load(SchedulerSettings, ["--prefill-hand-off=never"]).prefill_hand_off == "never"
