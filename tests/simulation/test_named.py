"""Situations that have broken engines with a second copy of the request state, each by itself."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.step_builder import build_step
from signalbox.v1 import generation_pb2, scheduler_pb2
from tests.simulation.nodes import MODEL, Session, Setup
from tests.simulation.scenario import Simulation
from worker_svc.core.request_state import SlotStatus
from worker_svc.core.step import SlotStart, StepDelta, StepReport
from worker_svc.core.worker_core import RunningStep, WorkerCore

INFLIGHT = pytest.mark.parametrize("inflight", [1, 2, 4])


def simulate(
    inflight: int, drafts: int = 0, num_blocks: int = 200, num_host_blocks: int = 0, **settings: object
) -> Simulation:
    """A ring with one worker and plenty of everything but what is named."""
    setup = Setup(
        num_workers=1,
        num_blocks=num_blocks,
        block_size=4,
        num_slots=12,
        max_model_len=64,
        vocab_size=1000,
        max_draft_tokens=drafts,
        acceptance=0.6,
        num_host_blocks=num_host_blocks,
    )
    values: dict[str, object] = {
        "max_num_seqs": 6,
        "max_num_batched_tokens": 64,
        "max_inflight_steps": inflight,
        "num_speculative_tokens": drafts,
        "watermark_blocks_per_seq": 0,
        "worker_grace_s": 2.0,
    }
    return Simulation(random.Random(inflight * 10 + drafts), setup, SchedulerConfig(**values | settings))  # type: ignore[arg-type]


def request(name: str, num_prompt: int, max_tokens: int, first_token: int = 0) -> Session:
    """A request whose prompt counts up."""
    return Session(name, [(first_token + i) % 1000 for i in range(num_prompt)], max_tokens, [])


def preemptions(simulation: Simulation) -> int:
    return sum(worker.stats.num_preemptions for worker in simulation.scheduler.core.workers.values())


@pytest.mark.parametrize("inflight", [1, 2, 3, 4])
@pytest.mark.parametrize("num_host_blocks", [0, 30])
def test_preempt_with_steps_in_flight(inflight: int, num_host_blocks: int) -> None:
    simulation = simulate(inflight, num_blocks=14, num_host_blocks=num_host_blocks)
    for number in range(4):
        simulation.plan(request(f"r{number}", 8, 30, 100 * number), at=1.5)
    outcome = simulation.run()
    assert outcome.num_preemptions > 0
    assert not num_host_blocks or outcome.num_host_hit_tokens > 0, "what was swapped out comes back"


@INFLIGHT
def test_preempted_three_times_in_a_row(inflight: int) -> None:
    simulation = simulate(inflight, num_blocks=11, max_num_seqs=3)
    seen: list[int] = []
    after = simulation.world.after_event

    def watch() -> None:
        after()
        seen.extend(r.num_preemptions for r in simulation.scheduler.core.requests.values())

    simulation.world.after_event = watch
    for number in range(6):
        simulation.plan(request(f"r{number}", 4, 36, 100 * number), at=1.5 + 0.05 * number)
    simulation.run()
    assert max(seen) >= 2 and preemptions(simulation) >= 3


@INFLIGHT
def test_cache_reset_while_a_speculative_step_is_in_flight(inflight: int) -> None:
    simulation = simulate(inflight, drafts=4)
    for number in range(5):
        simulation.plan(request("same" + str(number), 16, 20), at=1.5 + 0.2 * number)
    for number in range(10):
        simulation.world.at(
            1.6 + 0.09 * number, lambda: simulation.scheduler.core.reset_prefix_cache() and None
        )
    simulation.run()


@INFLIGHT
@pytest.mark.parametrize("threshold", [1, 3, 4, 5])
def test_chunk_boundaries_under_concurrency(inflight: int, threshold: int) -> None:
    simulation = simulate(inflight, long_prefill_token_threshold=threshold)
    for number in range(4):
        simulation.plan(request(f"r{number}", 11 + number, 6, 50 * number), at=1.5)
    assert simulation.run().num_requests == 4


@INFLIGHT
def test_cancel_then_the_same_id_while_the_old_step_is_in_flight(inflight: int) -> None:
    simulation = simulate(inflight)
    first = simulation.plan(request("same", 12, 30), at=1.5)
    simulation.num_planned += 1

    def again() -> None:
        simulation.frontend.cancel(first)
        simulation.frontend.submit(request("same", 12, 10, 500))

    simulation.world.at(1.55, again)
    simulation.run()
    assert [session.ends[0] for session in simulation.frontend.sessions] == [
        "cancelled",
        "FINISH_REASON_LENGTH",
    ]


@INFLIGHT
@pytest.mark.parametrize("end", ["cancel", "stop string", "max_tokens"])
def test_blocks_of_an_ended_request_are_reused_while_its_last_steps_run(inflight: int, end: str) -> None:
    """Blocks are poisoned when they are given away, so reading what the step before left there shows."""
    simulation = simulate(inflight, num_blocks=8)
    first = simulation.plan(request("first", 16, 8 if end == "max_tokens" else 16), at=1.5)
    first.stop_after = 5 if end == "stop string" else None
    if end == "cancel":
        simulation.world.at(1.6, lambda: simulation.frontend.cancel(first))
    simulation.plan(request("second", 20, 10, 500), at=1.52)
    simulation.run()


@INFLIGHT
def test_a_worker_that_lost_a_slot(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, lost = WorkerCore.apply, []

    def lose_once(core: WorkerCore, delta: StepDelta) -> RunningStep:
        decoding = [slot for slot in range(12) if core.table.status[slot] == SlotStatus.DECODE]
        if delta.step_id == 8 and not lost:
            lost.append(decoding[0])
            core._clear(decoding[0])
        return apply(core, delta)

    monkeypatch.setattr(WorkerCore, "apply", lose_once)
    simulation = simulate(inflight)
    simulation.faults = True
    sessions = [simulation.plan(request(f"r{n}", 8, 30, 100 * n), at=1.5) for n in range(3)]
    simulation.run()
    assert simulation.scheduler.num_divergences == 1
    assert sorted(session.num_attempts for session in sessions) == [1, 1, 2], "nobody else was disturbed"


@INFLIGHT
def test_a_first_chunk_is_refused_with_the_second_already_sent(
    inflight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    admit = WorkerCore._admit_chunks

    def refuse_once(core: WorkerCore, delta: StepDelta, report: StepReport) -> list[SlotStart]:
        if delta.started and not refused and delta.started[0].length == 5:
            refused.append(delta.started[0].slot)
            core.table.num_computed[delta.started[0].slot] = 1
        return admit(core, delta, report)

    monkeypatch.setattr(WorkerCore, "_admit_chunks", refuse_once)
    simulation = simulate(inflight, long_prefill_token_threshold=5)
    simulation.plan(request("r0", 22, 8), at=1.5)
    simulation.plan(request("r1", 9, 8, 300), at=1.6)
    simulation.run()
    assert refused and simulation.scheduler.num_divergences == 0
    assert preemptions(simulation) >= 1, "the slot's counts were uncertain until it was preempted"


@INFLIGHT
def test_a_step_in_which_a_request_yields_no_token(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped: list[int] = []
    apply = WorkerCore.apply

    def skip_once(core: WorkerCore, delta: StepDelta) -> RunningStep:
        decoding = [s for s in range(12) if core.table.status[s] == SlotStatus.DECODE and core.table.runs[s]]
        if delta.step_id != 8 or skipped or not decoding:
            return apply(core, delta)
        skipped.append(decoding[0])
        core.table.status[decoding[0]] = SlotStatus.PREFILL
        step = apply(core, delta)
        core.table.status[decoding[0]] = SlotStatus.DECODE
        return step

    monkeypatch.setattr(WorkerCore, "apply", skip_once)
    simulation = simulate(inflight)
    for number in range(3):
        simulation.plan(request(f"r{number}", 8, 20, 100 * number), at=1.5)
    simulation.run()
    assert skipped and simulation.scheduler.num_divergences == 0


@INFLIGHT
@pytest.mark.parametrize("drafts", [0, 1, 4])
def test_max_tokens_is_exact(inflight: int, drafts: int) -> None:
    simulation = simulate(inflight, drafts)
    sessions = [simulation.plan(request(f"r{n}", 5, n, 100 * n), at=1.5) for n in range(1, 8)]
    simulation.run()
    assert [len(session.output) for session in sessions] == list(range(1, 8))


def test_a_request_that_fits_the_cache_exactly() -> None:
    simulation = simulate(2, drafts=4, num_blocks=6)
    session = simulation.plan(request("exact", 10, 15), at=1.5)
    assert len(session.prompt) + session.max_tokens == simulation.limit == 25
    simulation.run()
    assert len(session.output) == 15


@INFLIGHT
def test_progress_with_a_pool_nearly_full(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one victim falls per need, and everybody ends."""
    from scheduler_svc.core import scheduler  # noqa: PLC0415
    from tests.simulation import nodes  # noqa: PLC0415

    victims: list[tuple[int, int]] = []

    def watch(worker, config, waiting):  # type: ignore[no-untyped-def]
        table = worker.table
        needy = int(((table.bound + table.advance) > table.trigger).sum()) + len(worker.held)
        step = build_step(worker, config, waiting)
        victims.append((len(step.preempted_slots), needy))
        return step

    assert nodes.MODEL == MODEL
    monkeypatch.setattr(scheduler, "build_step", watch)
    simulation = simulate(inflight, num_blocks=16)
    for number in range(10):
        simulation.plan(request(f"r{number}", 6 + number, 20 + number, 70 * number), at=1.5 + 0.03 * number)
    simulation.run()
    assert all(fallen <= needy for fallen, needy in victims)
    assert any(fallen for fallen, _ in victims)


@INFLIGHT
def test_the_same_host_block_out_and_in_within_one_delta(inflight: int) -> None:
    """A host tier of three blocks that is always full: what is copied back must not be overwritten by what the same
    delta copies out."""
    simulation = simulate(inflight, num_blocks=5, num_host_blocks=3, max_num_seqs=1)
    for number in range(8):
        simulation.plan(request(f"r{number}", 13, 4, 300 * (number % 2)), at=1.5 + 0.2 * number)
    assert simulation.run().num_host_hit_tokens > 0


@INFLIGHT
@pytest.mark.parametrize("damage", ["payload", "token", "count"])
def test_a_broken_request_fails_alone(inflight: int, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it: dict[str, Callable[[scheduler_pb2.NewRequestData], None]] = {
        "payload": lambda new: setattr(new, "payload", b"\xff\xff\xff"),
        "token": lambda new: setattr(
            new,
            "payload",
            generation_pb2.RequestPayload(token_ids=b"\xff\xff\xff\x7f" * 9).SerializeToString(),
        ),
        "count": lambda new: setattr(new, "payload", generation_pb2.RequestPayload().SerializeToString()),
    }
    from tests.simulation import nodes  # noqa: PLC0415

    parse = nodes.worker_delta.parse_new_request

    def parse_broken(new: scheduler_pb2.NewRequestData, info):  # type: ignore[no-untyped-def]
        if new.ref.request_id == "bad":
            break_it[damage](new)
        return parse(new, info)

    monkeypatch.setattr(nodes.worker_delta, "parse_new_request", parse_broken)
    simulation = simulate(inflight)
    simulation.faults = True
    bad = simulation.plan(request("bad", 9, 10), at=1.5)
    good = [simulation.plan(request(f"r{n}", 9, 10, 100 * n), at=1.5) for n in range(1, 3)]
    simulation.run()
    assert bad.ends == ["FINISH_REASON_ERROR"]
    assert [session.ends for session in good] == [["FINISH_REASON_LENGTH"]] * 2
    assert simulation.scheduler.num_divergences == 0
