"""A scenario drawn from a seed: sizes, settings, requests and faults."""

from __future__ import annotations

import random
from dataclasses import replace

from scheduler_svc.core.state.config import SchedulerConfig
from tests.simulation.disk import draw_disk
from tests.simulation.groups import draw_groups, draw_states, with_host_tier
from tests.simulation.scenario import Simulation
from tests.simulation.session import Session, Setup
from worker_svc.core.requests.pooling import PoolingMode


class Scenario(Simulation):
    """One simulated run. `inflight` and `drafts` are fixed by the caller, all else by the seed."""

    def __init__(
        self,
        seed: int,
        inflight: int,
        drafts: int,
        faults: bool = True,
        vocab_size: int | None = None,
        runs_ahead: bool = False,
        num_state_versions: int = 0,
        has_groups: bool = False,
        has_checkpoints: bool = False,
        has_host_tier: bool = False,
        has_disk: bool = False,
        num_lanes: int = 1,
    ) -> None:
        rng = random.Random(seed * 1000 + inflight * 10 + drafts)
        self.fate = random.Random(f"policy {seed}/{inflight}/{drafts}")
        """Of its own, so that a seed keeps its plot when policies are added."""
        copies = random.Random(f"copies {seed}/{inflight}/{drafts}")
        with_faults = faults and rng.random() < 0.6
        setup = Setup(
            num_workers=rng.choice((1, 1, 2)),
            num_blocks=rng.choice((12, 16, 24, 48)),
            block_size=rng.choice((2, 4)),
            num_slots=rng.choice((6, 12)),
            max_model_len=64,
            vocab_size=vocab_size or rng.choice((50, 1000)),
            max_draft_tokens=drafts,
            acceptance=rng.choice((0.0, 0.6, 1.0)),
            num_host_blocks=rng.choice((0, 0, 4, 40)) if not (num_state_versions or has_groups) else 0,
            num_state_versions=num_state_versions,
            compile_s=rng.choice((0.01, 0.3)),
            grammar_failures=rng.choice((0.0, 0.3)),
            runs_ahead=runs_ahead,
            copy_s=copies.choice((0.0, 0.05, 0.5)),
            copy_failures=copies.choice((0.0, 0.0, 0.3)) if faults else 0.0,
            num_lanes=num_lanes,
        )
        if has_groups:
            setup = replace(
                setup, groups=draw_groups(random.Random(f"groups {seed}"), setup.block_size, drafts)
            )
        if has_checkpoints:
            drawn = draw_states(random.Random(f"checkpoints {seed}"), setup.block_size)
            setup = replace(setup, state_group=drawn)
        if has_host_tier:
            dice = random.Random(f"host tier {seed}")
            num_spine_blocks, groups, states = with_host_tier(dice, setup.groups, setup.state_group)
            setup = replace(setup, num_host_blocks=num_spine_blocks, groups=groups, state_group=states)
        if has_disk:
            setup = replace(setup, disk=draw_disk(random.Random(f"disk {seed}")))
        seqs = rng.choice((2, 4, 6))
        policy = self.fate.choice(("fcfs", "priority", "priority", "fair", "priority+fair"))
        lower = random.Random(f"lower {seed}").choice((0, 3))
        config = SchedulerConfig(
            max_num_seqs=seqs,
            max_num_batched_tokens=rng.choice((seqs * (1 + drafts), 16 + seqs * (1 + drafts), 200)),
            long_prefill_token_threshold=rng.choice((0, 0, 5)),
            max_inflight_steps=inflight,
            num_speculative_tokens=drafts,
            watermark_blocks_per_seq=rng.choice((0, 1, 2)),
            enable_prefix_caching=rng.random() < 0.85,
            worker_grace_s=2.0,
            no_worker_grace_s=5.0,
            frontend_grace_s=3.0,
            start_grace_s=1.0,
            policy=_with_deadlines(policy) if random.Random(f"deadlines {seed}").random() < 0.3 else policy,
            ttft_targets="0:50,1:500",
            lower_class_prefill_tokens=lower if "priority" in policy else 0,
            aging_s=self.fate.choice((0.0, 0.1, 1.0)),
            side_copy_blocks=copies.choice((0, 1, 2, 4)),
        )
        super().__init__(rng, setup, config)
        self.faults = with_faults
        self._plan_requests()
        if self.faults:
            self._plan_faults()
        if config.has_classes:
            self._plan_safe_mode(random.Random(f"safe mode {seed}/{inflight}/{drafts}"))

    # -- the plot --

    def _plan_requests(self) -> None:
        rng = self.rng
        num_requests = rng.randrange(4, 16)
        prefixes = [[rng.randrange(self.setup.vocab_size) for _ in range(24)] for _ in range(2)]
        for number in range(num_requests):
            shared = rng.choice(prefixes)[: rng.randrange(0, 25)]
            own = [rng.randrange(self.setup.vocab_size) for _ in range(rng.randrange(1, 16))]
            prompt = (shared + own)[: self.limit - 1]
            session = Session(
                request_id=f"r{number if rng.random() < 0.8 else max(number - 1, 0)}",
                prompt=prompt,
                max_tokens=rng.randrange(1, 30),
                stop_token_ids=[rng.randrange(self.setup.vocab_size) for _ in range(rng.choice((0, 0, 5)))],
                stop_after=rng.randrange(1, 20) if rng.random() < 0.1 else None,
                pooling=rng.choice(list(PoolingMode)) if rng.random() < 0.2 else None,
            )
            session.has_grammar = session.pooling is None and rng.random() < 0.2
            self._plan(session, 1.5 + rng.uniform(0, 1.0))
        if rng.random() < 0.4:
            self._plan_crowd(prefixes[0])

    def _plan_crowd(self, prompt: list[int]) -> None:
        """Many requests at once that begin alike: they share what the first of them computes."""
        rng, at = self.rng, 1.5 + self.rng.uniform(0, 1.0)
        for number in range(rng.randrange(2, 8)):
            own = [rng.randrange(self.setup.vocab_size) for _ in range(rng.choice((0, 0, 3)))]
            session = Session(f"crowd{number}", (prompt + own)[: self.limit - 1], rng.randrange(1, 12), [])
            self._plan(session, at + rng.choice((0.0, 0.0, 0.005)))

    def _plan(self, session: Session, at: float) -> None:
        self.num_planned += 1
        session.priority, session.tenant = self.fate.randrange(3), self.fate.choice("ab")
        self.world.at(at, lambda: self._submit(session))

    def _submit(self, session: Session) -> None:
        """A client never names two running requests alike: an older one of the same name is cancelled just before."""
        rng = self.rng
        for other in self.frontend.sessions:
            if other.request_id == session.request_id and not other.is_done:
                self.frontend.cancel(other)
        self.frontend.submit(session)
        if rng.random() < 0.2:
            self.world.at(rng.uniform(0, 0.5), lambda: self.frontend.cancel(session))
        if rng.random() < 0.15:
            self.world.at(rng.uniform(0, 0.3), lambda: self.frontend.set_paused(session, True))
            self.world.at(rng.uniform(0.3, 1.0), lambda: self.frontend.set_paused(session, False))

    def _plan_faults(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(1, 5)):
            fault = rng.choice(
                (
                    self._break_worker,
                    self._break_frontend,
                    self._break_outputs,
                    self._kill_worker,
                    self._kill_scheduler,
                )
            )
            self.world.at(1.5 + rng.uniform(0.0, 1.5), fault)

    def _plan_safe_mode(self, dice: random.Random) -> None:
        """An operator suspends classes and lets them go on again."""
        for _ in range(dice.choice((0, 0, 1, 3))):
            at = 1.5 + dice.uniform(0.0, 1.5)
            level = dice.choice((-1, 0, 1))
            self.world.at(at, lambda level=level: self._set_safe_mode(level))  # type: ignore[misc]
            self.world.at(at + dice.uniform(0.0, 1.0), lambda: self._set_safe_mode(None))

    def _set_safe_mode(self, level: int | None) -> None:
        node, now = self.scheduler, self.world.now
        if not node.alive:
            return
        node.dirty = True
        if level is None:
            node.core.lift_safe_mode(now)
        else:
            node.core.set_safe_mode(level, now)
        node.pump()

    def _break_worker(self) -> None:
        link = self.rng.choice(self.workers).link
        if link is not None:
            link.break_()

    def _break_frontend(self) -> None:
        if self.frontend.link is not None:
            self.frontend.link.break_()

    def _break_outputs(self) -> None:
        for link in list(self.frontend.output_links.values()):
            link.break_()

    def _kill_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        if worker.alive:
            worker.kill()
            self.world.at(self.rng.uniform(0.01, 1.0), worker.restart)

    def _kill_scheduler(self) -> None:
        if self.scheduler.alive:
            self.scheduler.kill()
            self.world.at(self.rng.uniform(0.01, 1.0), self.scheduler.restart)


def _with_deadlines(policy: str) -> str:
    return "deadline" if policy == "fcfs" else f"{policy}+deadline"
