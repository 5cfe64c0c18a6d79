"""`python -m tests.worker_svc.runner.cuda.interpreted.failing_worker N ...`: a worker whose device is lost in its Nth
replay of a graph, counted from 1."""

from __future__ import annotations

import sys
from functools import partial

from tests.worker_svc.runner.cuda.replayed_capture import Device, MortalRunner, ReplayedCapture
from worker_svc.__main__ import main
from worker_svc.runner.cuda import runner

if __name__ == "__main__":
    device = Device()
    capture = ReplayedCapture(int(sys.argv.pop(1)), device.lose)
    runner.CudaRunner = partial(MortalRunner, capture=capture, device_lost=device)  # type: ignore[assignment, misc]
    main()
