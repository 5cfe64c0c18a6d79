"""Wall clocks of services under test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.clock import COMPILER, Clock

SAY_OFTEN = "import time\nwhile True: print(time.time(), time.monotonic(), flush=True); time.sleep(0.05)"
HOUR_S = 3600


@pytest.mark.skipif(not COMPILER, reason="there is no C compiler")
def test_a_wall_clock_goes_forward_and_back_in_a_process_that_runs_and_the_monotonic_one_does_not(
    tmp_path: Path,
) -> None:
    clock = Clock(tmp_path, "a")
    command = [sys.executable, "-c", SAY_OFTEN]
    with subprocess.Popen(
        command, env=os.environ | clock.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        last = 0.0
        for ahead_s in (0, HOUR_S, -HOUR_S, 0):
            clock.set(ahead_s)
            for line in process.stdout:
                wall, monotonic = map(float, line.split())
                assert last <= monotonic <= time.monotonic()
                last = monotonic
                if abs(wall - time.time() - ahead_s) < HOUR_S / 2:
                    break
        process.kill()
