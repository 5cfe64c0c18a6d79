"""Random scenarios of a scheduler whose workers have all parts that can be together, and do what they are told. All is
drawn from the seed, so two runs of one seed differ only by what the scheduler decides."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import count

import numpy as np

from scheduler_svc.core.moves.desk import HandoffRefusedError
from scheduler_svc.core.parts.disk.stores import DiskOrders
from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.parts.pulls.part import PULLS, pulls_of
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.handoff import Phase as HandoffPhase
from scheduler_svc.core.state.steps.step import StepDecision, StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.links.codec.delta import build_step
from scheduler_svc.links.codec.disk import take_disk_event
from scheduler_svc.links.codec.events import take_event
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind, FinishReason
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.v1 import from_worker_pb2, to_worker_pb2
from tests.scheduler_svc.harness import MODEL, make_info, make_request

NAMES = ("w0", "w1")
NUM_EVENTS = 260
BLOCK_SIZE = 4
KINDS = ("states", "pulls")
"""Workers that keep checkpoints of recurrent states, and those that read blocks from each other: none does both."""
US_PER_TOKEN = 1000


class World:
    """One scenario. `run` returns the steps of all workers, as bytes, in the order in which they were made."""

    def __init__(self, seed: int, kind: str, *, checks: bool = True) -> None:
        """checks: the scheduler's invariants are checked on the way."""
        self.rng = random.Random(f"parts {kind} {seed}")
        self._checks = checks
        self.kind = kind
        self.core = self._make_core()
        self.now = 0.0
        self.steps: list[tuple[str, bytes]] = []
        self.happened = Counter[str]()
        """What steps have said, by kind: a scenario in which parts are at rest shows nothing."""
        self._prompts = [[self.rng.randrange(1000) for _ in range(24)] for _ in range(6)]
        self._num_requests = 0
        self._ended: dict[str, set[int]] = {name: set() for name in NAMES}
        """By worker: slots whose end has been reported, until a report says that they are free."""
        self._open: list[tuple[str, StepDecision]] = []
        """Steps with copies, loads, stores or a pull that have not ended."""
        self._fields = self._draw_fields()
        for name in NAMES:
            self.core.attach_worker(self._info(name), None, 0.0)
            self._begin_disk(name)
        for worker in self.core.workers.values():
            self._measure_pulls(worker)

    def _make_core(self) -> Scheduler:
        rng, seqs = self.rng, self.rng.choice((3, 5))
        config = SchedulerConfig(
            max_num_seqs=seqs,
            max_num_batched_tokens=rng.choice((16, 40, 200)),
            max_inflight_steps=rng.choice((1, 2, 4)),
            side_copy_blocks=rng.choice((0, 2, 32)),
            watermark_blocks_per_seq=rng.choice((0, 1)),
            affinity_wait_ms=0.0,
            affinity_min_tokens=1,
            just_in_time_steps=False,
        )
        core = Scheduler(config, 1, 0.0, instance="s")
        keys = count(1)
        core.handoffs._make_key = core.handoffs.pulls._make_key = lambda: next(keys).to_bytes(16, "little")
        return core

    def _info(self, name: str) -> WorkerInfo:
        return make_info(worker_id=name, instance=f"i{name}", address=f"{name}:1", **self._fields)

    def _draw_fields(self) -> dict[str, object]:
        rng = self.rng
        fields: dict[str, object] = {
            "num_slots": 8,
            "num_blocks": rng.choice((24, 32, 48)),
            "num_host_blocks": rng.choice((0, 8, 24)),
            "num_lanes": rng.choice((1, 1, 2, 3)),
            "kv_layout": "k",
            "pulls_blocks": True,
        }
        if self.kind == "states":
            states = StateGroup(BLOCK_SIZE, rng.choice((2, 4, 8)), num_host_checkpoints=rng.choice((0, 2, 6)))
            return fields | {"state_group": states}
        if rng.random() < 0.3:
            window = BlockGroup(BlockGroupKind.WINDOW, 6, rng.choice((16, 30)), num_host_blocks=4)
            return fields | {"groups": (window,)}
        return fields

    def _measure_pulls(self, worker: Worker) -> None:
        """What pulls take is known from the beginning, in some scenarios: several may be worth while at a time then."""
        pulls = pulls_of(worker)
        if pulls is None or self.rng.random() < 0.2:
            return
        pulls.pace.token_us = US_PER_TOKEN
        for name in NAMES:
            pulls.pace.pulled(name, 1000.0, [1.0] * len(worker.pools), self.now)

    # -- the plot --

    def run(self) -> list[tuple[str, bytes]]:
        """Runs to the end."""
        plot: list[tuple[Callable[[], None], int]] = [
            (self._submit, 6),
            (self._report, 30),
            (self._end_beside, 12),
            (self._hand_over, 12),
            (self._go_on_with_handoff, 24),
            (self._cancel, 2),
            (self._drain, 4),
            (self._forget_disk, 2),
        ]
        moves, weights = zip(*plot, strict=True)
        for number, move in enumerate(self.rng.choices(moves, weights, k=NUM_EVENTS)):
            self.now += 0.01
            move()
            if self.rng.random() < 0.5:
                self._pump()
            if self._checks and number % 20 == 0:
                self.core.check_integrity()
        return self.steps

    def _pump(self) -> None:
        for name in NAMES:
            while (step := self.core.schedule(name, self.now)) is not None:
                message = build_step(step, 1)
                self.steps.append((name, message.SerializeToString(deterministic=True)))
                self._note(step, message)
                if step.fence is not None or step.fetch is not None or message.HasField("disk"):
                    self._open.append((name, step))

    def _note(self, step: StepDecision, message: to_worker_pb2.SchedulerOutput) -> None:
        for orders in step.orders.values():
            self.happened.update(field for field, value in vars(orders).items() if value)
        if step.checkpoints:
            self.happened["checkpoints"] += 1
        if step.fetch is not None:
            self.happened[step.fetch.source] += 1
            check_fetch(step, message)

    # -- what clients do --

    def _submit(self) -> None:
        """Some requests at once, each of which begins as others do."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 4))):
            tokens = rng.choice(self._prompts)[: rng.randrange(4, 25)]
            tokens = tokens + [rng.randrange(1000) for _ in range(rng.choice((0, 1, 5)))]
            self._num_requests += 1
            name, most = f"r{self._num_requests}", rng.randrange(2, 30)
            self.core.submit(make_request(name, len(tokens), most, _names_of(tokens)), self.now)

    def _cancel(self) -> None:
        if self.core.requests:
            key = self.rng.choice(list(self.core.requests))
            self.core.cancel(key, 1)

    def _drain(self) -> None:
        """Nothing new goes to one of the workers, so that the other one has to get what that one has cached."""
        away = self.rng.choice((*NAMES, ""))
        for worker in self.core.workers.values():
            worker.draining = worker.info.worker_id == away
        self.core.standings.forget()

    # -- what workers say --

    def _report(self) -> None:
        name = self.rng.choice(NAMES)
        if self.core.workers[name].records:
            self._report_oldest(name)

    def _report_oldest(self, name: str) -> None:
        worker, ended = self.core.workers[name], self._ended[name]
        record = worker.records[0]
        rows = [slot for slot in np.flatnonzero(record.advance).tolist() if slot not in ended]
        silent = [slot for slot in np.flatnonzero(record.advance).tolist() if slot in ended]
        finals = [chunk.slot for chunk in record.chunks if chunk.is_final]
        finished = self._ends_of(worker, [*rows, *finals])
        report = StepReport(
            record.step_id,
            record.num_decode_rows,
            record.num_prefill_tokens,
            finished=finished,
            checkpoint_positions=[
                order.position or self._end_of(worker, order.slot) for order in record.checkpoints
            ],
            execute_us=US_PER_TOKEN * (record.num_decode_rows + record.num_prefill_tokens),
        )
        if silent:
            report.exception_slots, report.exception_counts = (
                np.array(silent),
                np.zeros(len(silent), np.int64),
            )
        self.core.update(name, report, self.now)
        ended |= {slot for slot, _, _ in finished}
        ended -= set(record.released_slots)

    def _end_of(self, worker: Worker, slot: int) -> int:
        """The last boundary that a slot has passed which has ended, or lost its blocks; 0: the worker has no state."""
        return BLOCK_SIZE * int(worker.table.num_hashes[slot]) if self.rng.random() < 0.7 else 0

    def _ends_of(self, worker: Worker, slots: list[int]) -> list[tuple[int, int, int]]:
        """Requests that end with their next token: by length, or by chance."""
        table, ends = worker.table, []
        for slot in slots:
            num_output = int(table.num_output[slot]) + 1
            is_full = int(table.num_prompt[slot]) + num_output >= int(table.limit[slot])
            if is_full or self.rng.random() < 0.04:
                reason = FinishReason.LENGTH if is_full else FinishReason.STOP
                ends.append((slot, int(reason), num_output))
        return ends

    def _end_beside(self) -> None:
        """What a step has begun beside the steps ends; sometimes it has come to nothing."""
        if not self._open:
            return
        name, step = self._open.pop(self.rng.randrange(len(self._open)))
        fails = self.rng.random() < 0.1
        if step.fence is not None:
            self.core.fence_ended(name, step.fence.fence_id, failed=fails)
        orders = step.ordered(DiskOrders)
        if orders is not None and orders.stores:
            self._tell(name, disk_stores_ended=from_worker_pb2.DiskStoresEnded(step_id=step.step_id))
            for store in orders.stores:
                self._tell_of_disk(name, {store.group: store.name})
        if step.fetch is not None and step.fetch.loads:
            lost = np.array([0] if fails else [], "<u4").tobytes()
            self._tell(name, disk_loads_ended=from_worker_pb2.DiskLoadsEnded(step_id=step.step_id, lost=lost))
        elif step.fetch is not None and step.fetch.source == PULLS:
            ended = from_worker_pb2.BlockPullEnded(step_id=step.step_id, duration_us=1500)
            ended.block_ns = np.full(len(step.fetch.groups), 10_000, "<u4").tobytes()
            if fails:
                ended.error.message = "no"
            self._tell(name, block_pull_ended=ended)

    def _tell(self, name: str, **fields: object) -> None:
        take_event(self.core, name, from_worker_pb2.WorkerEvent(**fields), self.now)  # type: ignore[arg-type]

    def _tell_of_disk(self, name: str, added: dict[int, bytes], *, begins: bool = False) -> None:
        news = from_worker_pb2.DiskNews(token_ns=US_PER_TOKEN * 1000, begins=begins)
        for group in range(len(self.core.workers[name].pools)):
            news.groups.add(group=group, block_ns=1000, added=added.get(group, b""))
        take_disk_event(self.core.workers[name], from_worker_pb2.WorkerEvent(disk_news=news))

    def _begin_disk(self, name: str) -> None:
        """Some of the prompts are on the disk of the worker, and nothing else."""
        there = b"".join(_names_of(tokens) for tokens in self._prompts if self.rng.random() < 0.4)
        self._tell_of_disk(name, dict.fromkeys(range(len(self.core.workers[name].pools)), there), begins=True)

    def _forget_disk(self) -> None:
        """An operator resets all caches, or what a worker has on disk is another."""
        if self.rng.random() < 0.3:
            self.core.reset_prefix_cache()
        else:
            self._begin_disk(self.rng.choice(NAMES))

    # -- hand-offs --

    def _hand_over(self) -> None:
        running = [request for request in self.core.requests.values() if request.worker_id is not None]
        if not running:
            return
        request = self.rng.choice(running)
        target = next(name for name in NAMES if name != request.worker_id)
        try:
            self.core.hand_over(request.key, target, self.now)
        except HandoffRefusedError:
            self.happened["refused"] += 1

    def _go_on_with_handoff(self) -> None:
        """One of those under way is ready, has ended, or will never end."""
        workers = self.core.workers.values()
        under_way = [each for worker in workers for each in handoffs_of(worker).imports.values()]
        under_way = [each for each in under_way if each.is_target_told]
        if not under_way:
            return
        handoff: Handoff = self.rng.choice(under_way)
        named = handoff.target.info.worker_id, handoff.target_slot, handoff.transfer
        if self.rng.random() < (0.5 if handoff.phase is HandoffPhase.FROZEN else 0.2):
            self.core.handoffs.failed(*named, self.now, "no")
        elif handoff.phase is HandoffPhase.BEGUN:
            self.core.handoffs.ready(*named, self.now)
        elif handoff.phase is HandoffPhase.FROZEN and self._report_all(handoff):
            self.core.handoffs.ended(*named, _arrived(handoff), self.now)

    def _report_all(self, handoff: Handoff) -> bool:
        """All steps of the source are reported: its counts are exact. Whether the hand-off is under way yet."""
        name = handoff.source.info.worker_id
        while handoff.source.records:
            self._report_oldest(name)
        return handoff.phase is HandoffPhase.FROZEN


def _names_of(tokens: list[int]) -> bytes:
    return chain_hashes(root_hash(MODEL), np.array(tokens, "<i4").tobytes(), BLOCK_SIZE)


def _arrived(handoff: Handoff) -> Arrived:
    """All that the source has."""
    table, slot = handoff.source.table, handoff.source_slot
    computed = int(table.confirmed(np.array([slot]))[0]) if handoff.has_blocks else 0
    return Arrived(computed, int(table.num_output[slot]), b"")


def check_fetch(step: StepDecision, message: to_worker_pb2.SchedulerOutput) -> None:
    """PT4: asserts that a worker is told of all blocks that a step has it fetch from a disk or another worker: those
    that it is not told of would be published with what they held before."""
    assert step.fetch is not None
    told = np.frombuffer(message.disk.loads.block_ids + message.pulls.pull.block_ids, "<u4").tolist()
    fetched = [block for group in step.fetch.groups for block in group.fetched.tolist()]
    assert sorted(told) == sorted(fetched), "a step fetches blocks that its worker is not told of"
