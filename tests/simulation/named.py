"""A ring with plenty of everything but what a test names, and ways to disturb it."""

from __future__ import annotations

import random

import pytest

from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.step.builder import build_step
from tests.simulation.scenario import Simulation
from tests.simulation.session import Session, Setup
from worker_svc.core.step import SlotStart, StepDelta, StepReport
from worker_svc.core.worker_core import WorkerCore

INFLIGHT = pytest.mark.parametrize("inflight", [1, 2, 4])


def simulate(
    inflight: int,
    drafts: int = 0,
    num_blocks: int = 200,
    num_host_blocks: int = 0,
    num_slots: int = 12,
    vocab_size: int = 1000,
    compile_s: float = 0.3,
    grammar_failures: float = 0.0,
    acceptance: float = 0.6,
    copy_s: float = 0.05,
    copy_failures: float = 0.0,
    runs_ahead: bool = False,
    **settings: object,
) -> Simulation:
    """A ring with one worker and plenty of everything but what is named."""
    setup = Setup(
        num_workers=1,
        num_blocks=num_blocks,
        block_size=4,
        num_slots=num_slots,
        max_model_len=64,
        vocab_size=vocab_size,
        max_draft_tokens=drafts,
        acceptance=acceptance,
        num_host_blocks=num_host_blocks,
        compile_s=compile_s,
        grammar_failures=grammar_failures,
        copy_s=copy_s,
        copy_failures=copy_failures,
        runs_ahead=runs_ahead,
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


def preempt_at_will(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[int]:
    """Takes the blocks of the request of that name whenever it decodes, so many times; the steps are listed."""
    from scheduler_svc.core import step_maker as maker  # noqa: PLC0415

    taken: list[int] = []

    def build(worker, config, offers, now):  # type: ignore[no-untyped-def]
        for slot in worker.table.decode_slots.tolist():
            if worker.request(slot).key.request_id == name and len(taken) < times:
                taken.append(worker.next_step_id)
                worker.table.refuse(slot)
        return build_step(worker, config, offers, now)

    monkeypatch.setattr(maker, "build_step", build)
    return taken


def refuse_first_chunk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The worker refuses the first chunk of five tokens that starts a request; the slot is in the list then."""
    refused: list[int] = []
    admit = WorkerCore._admit_chunks

    def refuse_once(core: WorkerCore, delta: StepDelta, report: StepReport) -> list[SlotStart]:
        if delta.started and not refused and delta.started[0].length == 5:
            refused.append(delta.started[0].slot)
            core.table.num_computed[delta.started[0].slot] = 1
        return admit(core, delta, report)

    monkeypatch.setattr(WorkerCore, "_admit_chunks", refuse_once)
    return refused
