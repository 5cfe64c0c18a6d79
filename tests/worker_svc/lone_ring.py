"""A scheduler's core and a worker's step loop whose scheduler goes, and comes back as another process."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.links.codec import delta as scheduler_delta
from signalbox.v1 import from_worker_pb2, shared_pb2, worker_pb2
from tests.worker_svc.drafting.local_ring import FRONTEND, WORKER, Client
from tests.worker_svc.threaded_ring import WAIT_S, ThreadedRing
from worker_svc.core.batch import ModelRunner
from worker_svc.links import delta as worker_delta
from worker_svc.steps.loop import StepResult


class _Told(Future[None]):
    """An item that nothing is done for but to say that it was taken."""

    def __init__(self, taken: threading.Event) -> None:
        super().__init__()
        self._taken = taken

    def set_running_or_notify_cancel(self) -> bool:
        """Asked by whoever takes it."""
        self._taken.set()
        return False


class LoneRing(ThreadedRing):
    """`step` while there is a scheduler; `rest` and `step_alone` while there is none."""

    def __init__(self, runner: ModelRunner, *, depth: int = 2, **options: Any) -> None:
        super().__init__(runner, depth=depth, **options)
        self._term = 1
        self._greet()
        self.num_own = 0

    def _greet(self) -> None:
        self.loop.greeted(self._term, f"s{self._term}")
        self.loop.announce()

    def lend(self, count: int) -> None:
        """Lends the free blocks of the worker that would be given away last, of each group."""
        free = [np.flatnonzero(pool.ref_counts == 0)[::-1][:count] for pool in self.worker.pools]
        self.loop.put(scheduler_delta.build_loan(free))
        self.settle()

    def settle(self) -> None:
        """Until the worker has taken all that was sent so far."""
        taken = threading.Event()
        self.loop._post(_Told(taken))  # type: ignore[arg-type]
        assert taken.wait(WAIT_S)

    def order(self, client: Client, action: int) -> None:
        """The frontend has no scheduler, and wants something of a request."""
        operation = worker_pb2.AttemptOperation(attempt=self.attempt_of(client), action=action)  # type: ignore[arg-type]
        self.loop.order(FRONTEND, [operation])

    def attempt_of(self, client: Client) -> int:
        return next(number for number, other in self._clients.items() if other is client)

    def lose_scheduler(self) -> None:
        """What is on its way to the worker and not taken yet is dropped."""
        self.loop.link_closed()

    def take_alone(self, timeout_s: float = WAIT_S) -> bool:
        """Waits for the outputs of one more step, which nobody is told of; False: there is none."""
        try:
            result = self._results.get(timeout=timeout_s)
        except queue.Empty:
            return False
        assert isinstance(result, StepResult)
        self.num_own += result.is_own
        self._put_out(result.outputs)
        return True

    def run_alone(self, num_steps: int) -> None:
        """Until the worker has made so many steps of its own."""
        before = self.num_own
        while self.num_own < before + num_steps:
            assert self.take_alone(), "it rests"

    def rest_alone(self) -> None:
        """Until the worker finds nothing to do any more."""
        while self.take_alone(timeout_s=0.2):
            pass

    def snapshot(self) -> from_worker_pb2.WorkerSnapshot:
        """All steps before it have been taken."""
        snapshot = self.loop.snapshot().result(WAIT_S)
        assert snapshot is not None
        while self.take_alone(timeout_s=0):
            pass
        self.core.table.check_integrity()
        return snapshot

    def find_scheduler(self) -> from_worker_pb2.WorkerSnapshot:
        """Another scheduler process takes the worker over, with all that clients still wait for."""
        snapshot = self.snapshot()
        self._term += 1
        info = self.worker.info
        hello = from_worker_pb2.WorkerHello(
            worker_id=WORKER,
            worker_instance=info.instance,
            model=shared_pb2.ModelEntry(
                model=info.model, max_model_len=info.max_model_len, block_size=info.block_size
            ),
            num_slots=info.num_slots,
            num_blocks=info.num_blocks,
            max_num_batched_tokens=info.max_num_batched_tokens,
            max_draft_tokens=info.max_draft_tokens,
            **worker_delta.host_blocks_of(info),
            groups=worker_delta.build_groups(info),
            snapshot=snapshot,
        )
        self.scheduler = Scheduler(self.scheduler.config, self._term, 0.0, instance=f"s{self._term}")
        live = [(f"r{number}", number) for number, client in self._clients.items() if not client.ends]
        self.scheduler.attach_frontend(FRONTEND, live, [], 0.0)
        self.scheduler.attach_worker(*scheduler_delta.parse_hello(hello), now=0.0)
        self.worker = self.scheduler.workers[WORKER]
        self.scheduler.check_integrity()
        self._greet()
        return snapshot
