"""Copies between device and host tier that run beside the steps."""

from __future__ import annotations

import functools

import pytest

from scheduler_svc.core.parts.fetch import host, side_copies
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step import prefill_admission
from scheduler_svc.core.step.builder import build_step
from scheduler_svc.core.step.prefix_sharing import Prefix
from tests.simulation.named import INFLIGHT, request, simulate
from tests.simulation.scenario import Simulation
from tests.simulation.session import Session
from worker_svc.core.step import SideCopies


def copies_take(simulation: Simulation, seconds: float) -> list[SideCopies]:
    """Every group of copies takes so long. Those that have begun are in the list."""
    node, begun = simulation.workers[0], []
    copied = node._copied

    def later(incarnation: int, group: SideCopies, fails: bool) -> None:
        begun.append(group)
        simulation.world.at(seconds, functools.partial(copied, incarnation, group, fails))

    node._copied = later  # type: ignore[method-assign]
    return begun


def swapped_out(inflight: int, **settings: object) -> tuple[Simulation, Session]:
    """A ring in which a prompt of ten blocks has been computed, and lies in the host tier by the time 2.5. The session
    asks for it once more at 3.0."""
    values: dict[str, object] = {
        "num_blocks": 24,
        "num_host_blocks": 80,
        "side_copy_blocks": 4,
        "copy_s": 0.0,
    }
    simulation = simulate(inflight, **values | settings)  # type: ignore[arg-type]
    simulation.plan(request("first", 40, 4), at=1.5)
    for number in range(1, 3):
        simulation.plan(request(f"other{number}", 40, 4, 300 * number), at=1.5 + 0.4 * number)
    again = simulation.plan(request("again", 40, 8), at=3.0)
    return simulation, again


def worker_of(simulation: Simulation) -> Worker:
    return simulation.scheduler.core.workers["worker-0"]


@INFLIGHT
def test_steps_go_on_while_blocks_are_copied_out_and_in(inflight: int) -> None:
    """X3."""
    simulation, again = swapped_out(inflight)
    begun = copies_take(simulation, seconds=0.6)
    runs = simulation.plan(request("runs", 4, 40, 800), at=2.9)
    lengths: list[int] = []
    after = simulation.world.after_event

    def watch() -> None:
        after()
        if simulation.workers[0].open_fences and again in simulation.frontend.sessions:
            assert not again.output, "it started before its blocks had come"
            lengths.append(len(runs.output))

    simulation.world.after_event = watch
    outcome = simulation.run()
    copies = [copy for group in begun for copy in group.copies]
    assert any(copy.source_is_host for copy in copies) and any(copy.target_is_host for copy in copies)
    assert lengths[-1] > lengths[0] + 5, "the running request stood still"
    assert outcome.num_host_hit_tokens >= 32 and outcome.num_fences >= 1


@INFLIGHT
@pytest.mark.parametrize(
    "end", ["cancel", "break the link", "kill the worker", "kill the scheduler", "reset the cache"]
)
def test_what_ends_while_fenced_leaves_nothing_behind(inflight: int, end: str) -> None:
    """X6."""
    simulation, again = swapped_out(inflight)
    simulation.faults = True
    copies_take(simulation, seconds=0.6)
    world, node, scheduler = simulation.world, simulation.workers[0], simulation.scheduler
    disturbed: list[float] = []
    ends = {
        "cancel": lambda: simulation.frontend.cancel(again),
        "break the link": lambda: node.link.break_() if node.link is not None else None,
        "kill the worker": lambda: (node.kill(), world.at(0.3, node.restart)),
        "kill the scheduler": lambda: (scheduler.kill(), world.at(0.3, scheduler.restart)),
        "reset the cache": scheduler.core.reset_prefix_cache,
    }
    after = world.after_event

    def watch() -> None:
        after()
        if node.open_fences and again in simulation.frontend.sessions and not disturbed:
            disturbed.append(world.now)
            world.at(0.1, ends[end])

    world.after_event = watch
    simulation.run()
    assert disturbed
    assert again.ends == ["cancelled" if end == "cancel" else "FINISH_REASON_LENGTH"]


@INFLIGHT
def test_failed_copies_are_made_up_for(inflight: int) -> None:
    """X9: what was not fetched is copied within the step; what was not saved is computed again."""
    simulation, again = swapped_out(inflight, copy_failures=1.0)
    begun = copies_take(simulation, seconds=0.1)
    simulation.run()
    assert begun and again.ends == ["FINISH_REASON_LENGTH"]


@INFLIGHT
def test_a_crowd_has_its_prompt_fetched_once(inflight: int) -> None:
    """X7."""
    simulation, _ = swapped_out(inflight)
    begun = copies_take(simulation, seconds=0.3)
    for number in range(4):
        simulation.plan(request(f"crowd{number}", 40, 5), at=3.0)
    simulation.run()
    fetched = [copy.source for group in begun for copy in group.copies if copy.source_is_host]
    assert fetched and len(fetched) == len(set(fetched))


@INFLIGHT
def test_nobody_falls_for_blocks_that_a_fence_will_free(inflight: int) -> None:
    """X3: all blocks but those of two running requests are fenced: they are held, the copies end, and they go on."""
    simulation, _ = swapped_out(inflight, num_blocks=16)
    copies_take(simulation, seconds=0.8)
    runs = simulation.plan(request("runs", 4, 40, 800), at=2.9)
    simulation.plan(request("younger", 4, 40, 900), at=2.95)
    held: list[int] = []
    after = simulation.world.after_event

    def watch() -> None:
        after()
        worker = worker_of(simulation) if simulation.scheduler.core.workers else None
        if worker is not None and worker.pool.num_fenced and worker.table.held:
            held.append(worker.stats.num_preemptions)

    simulation.world.after_event = watch
    simulation.run()
    assert held and len(runs.output) == 40
    assert held[-1] == 0, "somebody fell for what was about to come"


@INFLIGHT
def test_what_is_being_fetched_is_not_overwritten(inflight: int) -> None:
    """X5: a host tier that is always full, and somebody who evicts more while blocks are copied back."""
    simulation = simulate(inflight, num_blocks=12, num_host_blocks=6, max_num_seqs=3, side_copy_blocks=1)
    begun = copies_take(simulation, seconds=0.3)
    for number in range(3):
        simulation.plan(request(f"runs{number}", 4, 40, 700 + 50 * number), at=1.5 + 0.8 * number)
    for number in range(14):
        simulation.plan(request(f"r{number}", 13, 4, 300 * (number % 3)), at=1.5 + 0.15 * number)
    simulation.run()
    assert any(copy.source_is_host for group in begun for copy in group.copies)


@INFLIGHT
def test_a_full_pool_with_frees_and_fences_pending(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody ends, at most one victim falls per need, and nobody waits for copies twice per start."""
    from scheduler_svc.core import step_maker as maker  # noqa: PLC0415

    victims: list[tuple[int, int]] = []

    def watch(worker, config, offers, now):  # type: ignore[no-untyped-def]
        needy = len(worker.table.decode_slots) + len(worker.table.held) + len(worker.table.settling)
        step = build_step(worker, config, offers, now)
        victims.append((len(step.preempted_slots), needy))
        return step

    waits: dict[str, int] = {}
    most: list[int] = []
    copy_aside, start = side_copies.copy_aside, prefill_admission.start_slot

    def count_wait(
        worker: Worker, request: Request, prefix: Prefix, num_new: int, step: StepDecision
    ) -> None:
        name = request.key.request_id
        waits[name] = waits.get(name, 0) + 1
        most.append(waits[name])
        copy_aside(worker, request, prefix, num_new, step)

    def count_start(worker: Worker, slot: int, *args, **options):  # type: ignore[no-untyped-def]
        waits[worker.request(slot).key.request_id] = 0
        return start(worker, slot, *args, **options)

    monkeypatch.setattr(maker, "build_step", watch)
    monkeypatch.setattr(host, "copy_aside", count_wait)
    monkeypatch.setattr(prefill_admission, "start_slot", count_start)
    simulation = simulate(inflight, num_blocks=16, num_host_blocks=24, side_copy_blocks=2, copy_s=0.2)
    for number in range(12):
        prompt = request(f"r{number}", 10 + number % 3 * 8, 20 + number, 70 * (number % 5))
        simulation.plan(prompt, at=1.5 + 0.05 * number)
    outcome = simulation.run()
    assert outcome.num_fences > 0 and outcome.num_preemptions > 0
    assert all(fallen <= needy for fallen, needy in victims)
    assert set(most) == {1}
