"""Whether it is sooner to load than to compute: a pure rule."""

from __future__ import annotations

import pytest

from scheduler_svc.core.parts.disk.worth import MARGIN, TRIAL_US, DiskPace, most_load_us

PACE = DiskPace(base_us=2000, block_us=(100.0, 10.0), token_us=50.0)


def test_what_is_sooner_computed_is_not_loaded() -> None:
    """DT7: and a load may take as long as computing would."""
    assert most_load_us(PACE, [100, 10], 16 * 100, 0) == 16 * 100 * 50
    assert most_load_us(PACE, [10, 0], 16, 0) == 0
    assert most_load_us(DiskPace(2000, (1e6, 1e6), 50.0), [100, 10], 16 * 100, 0) == 0


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 5, 8, 13, 100])
def test_a_load_is_made_only_below_the_margin(num_blocks: int) -> None:
    """DT7."""
    load_us, compute_us = 2000 + 100 * num_blocks, 16 * num_blocks * 50
    assert bool(most_load_us(PACE, [num_blocks, 0], 16 * num_blocks, 0)) == (load_us < MARGIN * compute_us)


def test_loads_under_way_count() -> None:
    """DT7."""
    assert most_load_us(PACE, [100, 0], 1600, 50_000)
    assert not most_load_us(PACE, [100, 0], 1600, 60_000)


@pytest.mark.parametrize(
    "pace", [DiskPace(2000, (100.0, 0.0), 0.0), DiskPace(2000, (0.0, 0.0), 50.0), DiskPace()]
)
def test_what_is_not_measured_is_tried_once_at_a_time(pace: DiskPace) -> None:
    """DT7."""
    assert most_load_us(pace, [100, 0], 1600, 0) == TRIAL_US
    assert most_load_us(pace, [100, 0], 1600, 1) == 0


def test_a_group_that_is_not_loaded_need_not_be_measured() -> None:
    """DT7."""
    pace = DiskPace(2000, (100.0, 0.0), 50.0)
    assert pace.is_measured([5, 0]) and not pace.is_measured([5, 1])
