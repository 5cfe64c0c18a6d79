"""Situations that have broken engines with a second copy of the request state, each by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step import report as report_reader
from scheduler_svc.core.step.builder import build_step
from scheduler_svc.core.step.report import still_theirs
from signalbox.v1 import from_worker_pb2, generation_pb2, to_worker_pb2
from tests.simulation.named import (
    INFLIGHT,
    preempt_at_will,
    preemptions,
    refuse_first_chunk,
    request,
    simulate,
)
from tests.simulation.penalties import NoRepeatRunner
from tests.simulation.session import Session
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import StepDelta, StepReport
from worker_svc.core.worker_core import WorkerCore
from worker_svc.links import delta as worker_delta


@pytest.mark.parametrize("inflight", [1, 2, 3, 4])
@pytest.mark.parametrize("num_host_blocks", [0, 30])
def test_preempt_with_steps_in_flight(inflight: int, num_host_blocks: int) -> None:
    """L15."""
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
        seen.extend(r.history.num_preemptions for r in simulation.scheduler.core.requests.values())

    simulation.world.after_event = watch
    for number in range(6):
        simulation.plan(request(f"r{number}", 4, 36, 100 * number), at=1.5 + 0.05 * number)
    simulation.run()
    assert max(seen) >= 2 and preemptions(simulation) >= 3


@INFLIGHT
@pytest.mark.parametrize("drafts", [0, 4])
def test_one_request_preempted_three_times_in_a_row(
    inflight: int, drafts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L15: each time as soon as it decodes again: its exact length has to be known every time."""
    taken = preempt_at_will(monkeypatch, "taken", times=3)
    simulation = simulate(inflight, drafts)
    sessions = [
        simulation.plan(request(name, 9, 20, 100 * n), at=1.5) for n, name in enumerate(("taken", "r1", "r2"))
    ]
    assert simulation.run().num_preemptions == len(taken) == 3
    assert [len(session.output) for session in sessions] == [20, 20, 20]


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
def test_a_cache_reset_holds_for_what_runs(inflight: int) -> None:
    """C7: what the first request computes after the reset reads what it computed before."""
    simulation = simulate(inflight, long_prefill_token_threshold=5)
    simulation.plan(request("old", 20, 40), at=1.5)
    simulation.world.at(1.53, lambda: simulation.scheduler.core.reset_prefix_cache() and None)
    simulation.plan(request("new", 20, 5), at=1.9)
    assert simulation.run().num_hit_tokens == 0


@INFLIGHT
def test_without_chunked_prefill_a_request_that_outgrew_the_budget_resumes(inflight: int) -> None:
    """L16."""
    simulation = simulate(
        inflight,
        num_blocks=14,
        enable_chunked_prefill=False,
        enable_prefix_caching=False,
        max_num_batched_tokens=10,
    )
    for number in range(4):
        simulation.plan(request(f"r{number}", 8, 30, 100 * number), at=1.5)
    assert simulation.run().num_preemptions > 0


@INFLIGHT
@pytest.mark.parametrize("threshold", [1, 3, 4, 5])
def test_chunk_boundaries_under_concurrency(inflight: int, threshold: int) -> None:
    """L4."""
    simulation = simulate(inflight, long_prefill_token_threshold=threshold)
    for number in range(4):
        simulation.plan(request(f"r{number}", 11 + number, 6, 50 * number), at=1.5)
    assert simulation.run().num_requests == 4


@INFLIGHT
def test_cancel_then_the_same_id_while_the_old_step_is_in_flight(inflight: int) -> None:
    """K1."""
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
@pytest.mark.parametrize("end", ["cancel", "stop string", "max_tokens", "preempt"])
def test_blocks_of_an_ended_request_are_reused_while_its_last_steps_run(
    inflight: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K2: blocks are poisoned when they are given away, so reading what the step before left there shows."""
    if end == "preempt":
        preempt_at_will(monkeypatch, "first", times=2)
    simulation = simulate(inflight, num_blocks=8)
    first = simulation.plan(request("first", 16, 8 if end == "max_tokens" else 16), at=1.5)
    first.stop_after = 5 if end == "stop string" else None
    if end == "cancel":
        simulation.world.at(1.6, lambda: simulation.frontend.cancel(first))
    simulation.plan(request("second", 20, 10, 500), at=1.52)
    simulation.run()


@pytest.mark.parametrize("inflight", [2, 4])
def test_a_seal_that_arrives_after_its_block_was_given_away(
    inflight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3: what it names is another's content by then: publishing it would hand out wrong blocks."""
    late: list[int] = []

    def count(worker: Worker, slots: np.ndarray, indexes: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        same = still_theirs(worker, slots, indexes)
        late.append(int(np.count_nonzero(~same)))
        return same

    monkeypatch.setattr(report_reader, "still_theirs", count)
    simulation = simulate(inflight, num_blocks=10, max_num_seqs=4)
    for number in range(12):
        simulation.plan(request(f"r{number}", 7, 18, 100 * (number % 2)), at=1.5 + 0.01 * number)
    simulation.run()
    assert sum(late) > 0


@INFLIGHT
@pytest.mark.parametrize("what", ["row", "chunk"])
def test_a_report_that_omits_a_request(inflight: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """M5: the checksum shows it, and the snapshot puts it right: nobody is lost, nothing is told twice."""
    build, omitted = worker_delta.build_report, []

    def omit_once(report: StepReport) -> from_worker_pb2.ModelRunnerOutput:
        message = build(report)
        if what == "row" and message.num_decode_rows > 1 and not omitted:
            message.num_decode_rows -= 1
            omitted.append(message.step_id)
        if what == "chunk" and message.num_prefill_tokens > 5 and not omitted:
            message.num_prefill_tokens -= 5
            omitted.append(message.step_id)
        return message

    monkeypatch.setattr(worker_delta, "build_report", omit_once)
    simulation = simulate(inflight, long_prefill_token_threshold=5)
    simulation.faults = True
    sessions = [simulation.plan(request(f"r{n}", 12, 12, 100 * n), at=1.5) for n in range(3)]
    simulation.run()
    assert omitted and simulation.scheduler.num_divergences == 1
    assert [session.ends for session in sessions] == [["FINISH_REASON_LENGTH"]] * 3
    assert all(session.num_attempts == 1 for session in sessions), "the worker has them all"


@INFLIGHT
def test_a_worker_that_lost_a_slot(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """J4."""
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
    """L3, K5."""
    refused = refuse_first_chunk(monkeypatch)
    simulation = simulate(inflight, long_prefill_token_threshold=5)
    simulation.plan(request("r0", 22, 8), at=1.5)
    simulation.plan(request("r1", 9, 8, 300), at=1.6)
    simulation.run()
    assert refused and simulation.scheduler.num_divergences == 0
    assert preemptions(simulation) >= 1, "the slot's counts were uncertain until it was preempted"


@INFLIGHT
def test_a_step_in_which_a_request_yields_no_token(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """M5."""
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
    """L14."""
    simulation = simulate(2, drafts=4, num_blocks=6)
    session = simulation.plan(request("exact", 10, 15), at=1.5)
    assert len(session.prompt) + session.max_tokens == simulation.limit == 25
    simulation.run()
    assert len(session.output) == 15


@INFLIGHT
def test_progress_with_a_pool_nearly_full(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """V1: at most one victim falls per need, and everybody ends."""
    from scheduler_svc.core import step_maker as maker  # noqa: PLC0415

    victims: list[tuple[int, int]] = []

    def watch(worker, config, offers, now):  # type: ignore[no-untyped-def]
        table = worker.table
        needy = int(((table.bound + table.advance) > table.trigger).sum()) + len(table.held)
        step = build_step(worker, config, offers, now)
        victims.append((len(step.preempted_slots), needy))
        return step

    monkeypatch.setattr(maker, "build_step", watch)
    simulation = simulate(inflight, num_blocks=16)
    for number in range(10):
        simulation.plan(request(f"r{number}", 6 + number, 20 + number, 70 * number), at=1.5 + 0.03 * number)
    simulation.run()
    assert all(fallen <= needy for fallen, needy in victims)
    assert any(fallen for fallen, _ in victims)


@INFLIGHT
def test_the_same_host_block_out_and_in_within_one_delta(inflight: int) -> None:
    """K8: a host tier of three blocks that is always full: what is copied back must not be overwritten by what the
    same delta copies out."""
    simulation = simulate(inflight, num_blocks=5, num_host_blocks=3, max_num_seqs=1)
    for number in range(8):
        simulation.plan(request(f"r{number}", 13, 4, 300 * (number % 2)), at=1.5 + 0.2 * number)
    assert simulation.run().num_host_hit_tokens > 0


@INFLIGHT
@pytest.mark.parametrize("damage", ["payload", "token", "count"])
def test_a_broken_request_fails_alone(inflight: int, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """U3, L7."""
    break_it: dict[str, Callable[[to_worker_pb2.NewRequestData], None]] = {
        "payload": lambda new: setattr(new, "payload", b"\xff\xff\xff"),
        "token": lambda new: setattr(
            new,
            "payload",
            generation_pb2.RequestPayload(token_ids=b"\xff\xff\xff\x7f" * 9).SerializeToString(),
        ),
        "count": lambda new: setattr(new, "payload", generation_pb2.RequestPayload().SerializeToString()),
    }
    parse = worker_delta.parse_new_request

    def parse_broken(new: to_worker_pb2.NewRequestData, info):  # type: ignore[no-untyped-def]
        if new.ref.request_id == "bad":
            break_it[damage](new)
        return parse(new, info)

    monkeypatch.setattr(worker_delta, "parse_new_request", parse_broken)
    simulation = simulate(inflight)
    simulation.faults = True
    bad = simulation.plan(request("bad", 9, 10), at=1.5)
    good = [simulation.plan(request(f"r{n}", 9, 10, 100 * n), at=1.5) for n in range(1, 3)]
    simulation.run()
    assert bad.ends == ["FINISH_REASON_ERROR"]
    assert [session.ends for session in good] == [["FINISH_REASON_LENGTH"]] * 2
    assert simulation.scheduler.num_divergences == 0


@INFLIGHT
@pytest.mark.parametrize("drafts", [0, 4])
@pytest.mark.parametrize("num_blocks", [14, 200])
def test_a_repetition_penalty_is_the_same_at_every_depth(inflight: int, drafts: int, num_blocks: int) -> None:
    """Y1: the sampler looks at all tokens so far: one that is missing, or a rejected draft that stays, shows."""
    simulation = simulate(inflight, drafts, num_blocks, vocab_size=60)
    simulation.workers[0].use(NoRepeatRunner(simulation.workers[0].info))
    prompts = {f"r{n}": [(7 * n + i) % 60 for i in range(8)] for n in range(4)}
    sessions = [
        simulation.plan(Session(name, prompt, 30, [], never_repeats=True), at=1.5)
        for name, prompt in prompts.items()
    ]
    assert (simulation.run().num_preemptions > 0) == (num_blocks == 14)
    assert all(len({*session.prompt, *session.output}) == 38 for session in sessions)
