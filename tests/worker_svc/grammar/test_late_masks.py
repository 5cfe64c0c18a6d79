"""Rows whose masks are late: they sit steps out, the others go on, and no output is another."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from signalbox.benchmarks.forms.hostile import hostile_forms
from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.limits import FormLimits
from signalbox.protocol.enums import FinishReason
from signalbox.v1 import generation_pb2
from tests.worker_svc.core.test_constrained_rows import Bench, Ladder
from tests.worker_svc.drafting.local_ring import Client, LocalRing
from tests.worker_svc.ranks.groups import group
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.core.requests.grammar import TOKENS_AHEAD, GrammarTable
from worker_svc.core.requests.masks import I32, INLINE, U32, MaskJob, MaskMaker
from worker_svc.grammar.compiler import GrammarCompiler
from worker_svc.grammar.preparation import GrammarPreparation
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.steps.mask_pool import GRACE_S, Grace, MaskPool, MaskQueue

NUM_TOKENS, NUM_DRAFTS = 30, 3
SETTINGS: dict[str, Any] = {"dtype": "float32", "block_size": 4, "threads": 1, "max_model_len": 80}
AMBIGUOUS = generation_pb2.StructuredOutput(grammar=hostile_forms()["two of itself"].text)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"names": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 3}},
        "required": ["names"],
    }
)
FORMS = (None, AMBIGUOUS, generation_pb2.StructuredOutput(json_schema=SCHEMA))
NUM_BLOCKS = 18
"""Too few for all that is asked for: somebody gives way."""
PROMPTS = ([5, 6, 7, 8, 9, 5, 6, 7], [20, 21, 22, 20, 21], [30, 31])


class HeldMasks:
    """A `MaskMaker` that makes each mask at one of the calls that follow, drawn. No step waits for one."""

    def __init__(self, seed: int, share: float = 0.4) -> None:
        """share: of the masks that are there, that are made at a call."""
        self._numbers, self._share, self._jobs = random.Random(seed), share, list[MaskJob]()
        self.num_late = 0

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        for job in jobs:
            job.is_begun = True
        self._jobs += jobs
        self._make_some()

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        self._make_some()
        self.num_late += sum(not job.is_done for job in jobs)

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        self._make(jobs[0])

    def _make_some(self) -> None:
        for job in list(self._jobs):
            if self._numbers.random() < self._share:
                self._make(job)

    def _make(self, job: MaskJob) -> None:
        self._jobs.remove(job)
        job.run()
        job.finish()


class MasksOfEmptySteps(HeldMasks):
    """Makes the first masks, and from then on one in each step in which nothing else runs."""

    def __init__(self, num_first: int) -> None:
        super().__init__(0, 1.0)
        self._num_first = num_first

    def _make(self, job: MaskJob) -> None:
        super()._make(job)
        self._num_first -= 1
        self._share = float(self._num_first > 0)


class FirstMasksOnly(MasksOfEmptySteps):
    """Makes the first masks, and no other."""

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        pass


@pytest.fixture(scope="module")
def runner() -> TorchRunner:
    return TorchRunner(
        DEMO_MODEL,
        served_model_name="demo",
        num_blocks=NUM_BLOCKS,
        max_draft_tokens=NUM_DRAFTS,
        **SETTINGS,
    )


@pytest.fixture(scope="module")
def grammars(runner: TorchRunner) -> Iterator[GrammarPreparation]:
    info = runner.info
    limits = FormLimits(max_heavy_masks=12)
    path = DEMO_MODEL / "tokenizer.json"
    grammars = GrammarPreparation(GrammarCompiler(path, info.vocab_size, info.eos_token_ids, limits))
    yield grammars
    grammars.close()


def play(
    runner: ModelRunner, grammars: GrammarPreparation, maker: MaskMaker, drafter: Drafter | None = None
) -> list[Client]:
    """Two requests of each form, one after the other."""
    num_drafts = NUM_DRAFTS if drafter is not None else 0
    ring = LocalRing(runner, drafter, depth=2, num_drafts=num_drafts, grammars=grammars)
    ring.core.make_masks_with(maker)
    clients = [submit(ring, number) for number in range(3)]
    for _ in range(4):
        ring.step()
    clients += [submit(ring, number) for number in range(3)]
    ring.run()
    return clients


def submit(ring: LocalRing, number: int) -> Client:
    sampling = generation_pb2.SamplingParams(temperature=0.9, seed=number, structured_output=FORMS[number])
    return ring.submit(PROMPTS[number], NUM_TOKENS, sampling)


def results_of(clients: list[Client]) -> list[tuple[list[int], list[int]]]:
    return [(client.output, client.ends) for client in clients]


@pytest.fixture(scope="module")
def undisturbed(runner: TorchRunner, grammars: GrammarPreparation) -> list[tuple[list[int], list[int]]]:
    results = results_of(play(runner, grammars, INLINE))
    assert [FinishReason(reason) for _, (reason,) in results[:2]] == [FinishReason.LENGTH, FinishReason.ERROR]
    return results


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("has_drafts", [False, True])
def test_outputs_and_their_ends_are_the_same_whoever_is_late(
    runner: TorchRunner, grammars: GrammarPreparation, undisturbed: Any, seed: int, has_drafts: bool
) -> None:
    """G6, G9, G10, G12: also with drafts, and through preemptions."""
    maker = HeldMasks(seed)
    clients = play(runner, grammars, maker, NgramDrafter(1, 4) if has_drafts else None)
    assert results_of(clients) == undisturbed
    assert maker.num_late >= 3
    assert any(client.preempted_at for client in clients)


def test_others_go_on_while_a_mask_is_late_however_often(
    runner: TorchRunner, grammars: GrammarPreparation, undisturbed: Any
) -> None:
    """G6, G14."""
    ring = LocalRing(runner, None, grammars=grammars)
    ring.core.make_masks_with(MasksOfEmptySteps(3))
    free, hostile = (submit(ring, number) for number in (0, 1))
    while not free.ends:
        ring.step()
    assert len(hostile.output) == 3 and not hostile.ends, (
        "its fourth mask was late for the whole of the other"
    )
    ring.run()
    assert results_of([free, hostile]) == undisturbed[:2]


def test_a_row_that_sits_out_before_its_last_token_keeps_no_blocks_from_others(
    runner: TorchRunner, grammars: GrammarPreparation
) -> None:
    """It is not certain to end in the steps in flight, however short its output is to be."""
    ring = LocalRing(runner, None, depth=2, grammars=grammars)
    ring.core.make_masks_with(FirstMasksOnly(1))
    older = ring.submit([5, 6, 7, 8, 9, 10, 11, 12], 56, generation_pb2.SamplingParams())
    ring.step()
    form = generation_pb2.StructuredOutput(regex="[a-z]{60,70}")
    hostile = ring.submit([20] * 24, 2, generation_pb2.SamplingParams(structured_output=form))
    for _ in range(300):
        if not older.ends:
            ring.step()
    assert len(older.output) == 56 and hostile.preempted_at


@pytest.mark.timeout(400)
def test_ranks_follow_whom_rank_0_leaves_out(grammars: GrammarPreparation) -> None:
    """G15."""
    settings = {**SETTINGS, "num_blocks": NUM_BLOCKS}
    with group(DEMO_MODEL, **settings) as (runner, _):
        wanted = results_of(play(runner, grammars, INLINE))
        maker = HeldMasks(5)
        assert results_of(play(runner, grammars, maker)) == wanted
    assert maker.num_late >= 3


def job(account: int, *, is_ahead: bool = True) -> MaskJob:
    return MaskJob(0, None, np.empty(0, np.int32), 1, account, is_ahead=is_ahead)


def test_accounts_take_turns() -> None:
    """G13."""
    queue = MaskQueue()
    for account in (7, 7, 7, 8, 9, 8):
        queue.put(job(account))
    taken = []
    while queue:
        taken.append(queue.take().account)
    assert taken == [7, 8, 9, 7, 8, 7]


def test_waits_for_masks_are_a_tenth_of_the_time() -> None:
    """G6."""
    grace = Grace(100.0)
    assert grace.begin(100.0) == GRACE_S
    grace.end(100.0 + GRACE_S)
    assert grace.begin(100.05 + GRACE_S) == pytest.approx(0.005)
    grace.end(100.05 + GRACE_S)
    assert grace.begin(200.0) == GRACE_S


class Blocked(Ladder):
    """Its mask is made when it is let go."""

    def __init__(self) -> None:
        super().__init__([{1}])
        self.has_begun, self.may_go = threading.Event(), threading.Event()

    def fill(self, drafts: I32, masks: U32) -> None:
        self.has_begun.set()
        assert self.may_go.wait(100)
        super().fill(drafts, masks)


def test_masks_made_ahead_leave_a_thread_to_the_step() -> None:
    """G13."""
    pool, slow = MaskPool(2), [Blocked(), Blocked()]
    drafts = np.empty(0, np.int32)
    held = [MaskJob(slot, automaton, drafts, 4, is_ahead=True) for slot, automaton in enumerate(slow)]
    pool.begin(held)
    urgent = MaskJob(2, Ladder([{1}]), drafts, 4)
    pool.begin([urgent])
    while not urgent.is_done:
        pool.wait([urgent])
    assert not any(each.is_done for each in held)
    for automaton in slow:
        automaton.may_go.set()
    while not all(each.is_done for each in held):
        pool.wait_for_one([each for each in held if not each.is_done])
    pool.close()


def test_a_step_that_waits_has_the_other_threads_help() -> None:
    """A batch wakes one thread, which may meet a slow mask first (G13)."""
    pool, slow, drafts = MaskPool(2), Blocked(), np.empty(0, np.int32)
    held, quick = MaskJob(0, slow, drafts, 4), [MaskJob(slot, Ladder([{1}]), drafts, 4) for slot in (1, 2)]
    pool.begin([held, *quick])
    assert slow.has_begun.wait(100)
    while not all(each.is_done for each in quick):
        pool.wait([held, *quick])
    assert not held.is_done
    slow.may_go.set()
    pool.close()


def test_masks_made_ahead_have_all_threads_but_one() -> None:
    """Though nobody waits for them (G13)."""
    pool, slow = MaskPool(3), [Blocked(), Blocked(), Blocked()]
    pool.begin([MaskJob(n, each, np.empty(0, np.int32), 4, is_ahead=True) for n, each in enumerate(slow)])
    assert all(each.has_begun.wait(100) for each in slow[:2]) and not slow[2].has_begun.is_set()
    for automaton in slow:
        automaton.may_go.set()
    assert slow[2].has_begun.wait(100)
    pool.close()


class _Panic(BaseException):
    """As the library raises it."""


class Panicking(Ladder):
    """Its mask ends in a panic of the library."""

    def fill(self, drafts: I32, masks: U32) -> None:
        raise _Panic("index out of bounds")


def test_a_panic_of_the_library_ends_its_row_and_no_thread() -> None:
    pool, drafts = MaskPool(1), np.empty(0, np.int32)
    jobs = [
        MaskJob(number, automaton, drafts, 4, is_ahead=True)
        for number, automaton in enumerate((Panicking([{1}]), Panicking([{1}]), Ladder([{1}])))
    ]
    pool.begin(jobs)
    while not all(each.is_done for each in jobs):
        pool.wait_for_one([each for each in jobs if not each.is_done])
    pool.close()
    assert [str(each.error) for each in jobs[:2]] == ["index out of bounds"] * 2 and jobs[2].error is None


def test_an_end_waits_for_the_mask_that_is_being_made() -> None:
    """A thread that comes back from the library when the interpreter has ended takes the process with it."""
    pool, slow = MaskPool(2), Blocked()
    held = MaskJob(0, slow, np.empty(0, np.int32), 4)
    pool.begin([held])
    assert slow.has_begun.wait(100)
    threading.Timer(0.1, slow.may_go.set).start()
    pool.close()
    assert held.is_done
    pool.close()


def test_a_prompt_that_ends_without_its_automaton_fails_alone() -> None:
    """No scheduler of ours starts one, and another's must not end the worker."""
    pool, slow = MaskPool(2), [Blocked(), Blocked()]
    pool.begin([MaskJob(slot, automaton, np.empty(0, np.int32), 4) for slot, automaton in enumerate(slow)])
    bench = Bench()
    bench.core.make_masks_with(pool)
    bench.add(0, None)
    bench.start(0)
    assert bench.ends[0][0] is FinishReason.ERROR
    for automaton in slow:
        automaton.may_go.set()
    pool.close()


def test_behind_a_late_mask_masks_are_begun_early_and_without_drafts() -> None:
    """G11."""
    table, slots, drafts = GrammarTable(1, 100), np.array([0]), [np.array([1, 1], np.int32)]
    table.expect(0)
    table.put(0, Ladder([{1}] * 500))
    table.advance(0, [1])
    cut = table.cut_drafts(slots, drafts)
    assert cut is not None and len(cut[0]) == 2
    table.sit_out([0])
    for _ in range(TOKENS_AHEAD):
        table.make_ahead([0])
        assert table.jobs[0].is_ahead
        cut = table.cut_drafts(slots, drafts)
        assert cut is not None and not len(cut[0])
        table.advance(0, [1])
    table.make_ahead([0])
    assert not table.jobs
    cut = table.cut_drafts(slots, drafts)
    assert cut is not None and len(cut[0]) == 2


class MasksOnDemand(HeldMasks):
    """Makes no mask until it is let go; then each as it is begun."""

    def __init__(self) -> None:
        super().__init__(0, 0.0)

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        """Returns without one."""

    def let_go(self) -> None:
        self._share = 1.0
        self._make_some()


def test_who_waits_for_its_first_mask_takes_nothing_from_others(
    runner: TorchRunner, grammars: GrammarPreparation
) -> None:
    """G12: no blocks, no part of the tokens of a step, and no preemption."""
    firsts = []
    for is_late in (False, True):
        ring, maker = LocalRing(runner, None, depth=2, grammars=grammars), MasksOnDemand()
        ring.core.make_masks_with(maker)
        if not is_late:
            maker.let_go()
        hostile = [submit(ring, 1) for _ in range(7 if is_late else 0)]
        for _ in range(3):
            ring.step()
        frees, number = [ring.submit([9 + k] * 40, 2) for k in range(2)], 0
        while not all(free.output for free in frees):
            ring.step()
            number += 1
            assert number < 50, "they get none of the tokens of the steps"
        firsts.append(number)
        assert not ring.worker.stats.num_preemptions
        maker.let_go()
        ring.run()
        assert all(client.ends for client in hostile)
    assert firsts[1] == firsts[0]
