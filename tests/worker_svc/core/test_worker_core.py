"""The worker's rules, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from signalbox.protocol.enums import FinishReason, NotRunReason
from signalbox.protocol.hash_chain import block_hash, chain_hashes, root_hash
from worker_svc.core.batch import Batch, BlockCopy, RunnerInfo, Sampled
from worker_svc.core.faults.isolation import RunnerBrokenError, run_step
from worker_svc.core.outbound_log import OutboundLog
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import NewRequest, RequestRef, SlotStart, StepDelta
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.runner.sim.model import SimRunner, continuation

INFO = RunnerInfo("sim", num_blocks=32, block_size=4, max_model_len=64, vocab_size=100, eos_token_ids=())
ROOT = root_hash("sim")
PROMPT = [5, 6, 7, 8, 9]


def make_core() -> tuple[WorkerCore, SimRunner]:
    return WorkerCore(INFO, num_slots=4), SimRunner(INFO)


def new(
    slot: int = 0, prompt: list[int] | None = None, max_tokens: int = 20, prior: int = 0, **sampling: object
) -> NewRequest:
    tokens = np.array(prompt or PROMPT, np.int32)
    chain = chain_hashes(ROOT, tokens.astype("<i4").tobytes(), 4)[-16:] or ROOT
    ref = RequestRef(f"r{slot}", slot + 1, "f")
    return NewRequest(slot, ref, tokens, prior, max_tokens, SamplingParams(**sampling), chain)  # type: ignore[arg-type]


def start(slot: int, blocks: list[int], length: int, at: int = 0) -> SlotStart:
    return SlotStart(slot, np.array(blocks, np.int32), at, length)


def run(core: WorkerCore, runner: SimRunner, delta: StepDelta):  # type: ignore[no-untyped-def]
    step = core.apply(delta)
    return core.commit(step, *run_step(runner, step.copies, step.batch))


def test_a_request_runs_from_prompt_to_its_last_token() -> None:
    """L4, M5, M8."""
    core, runner = make_core()
    core.add(new(max_tokens=6))
    expected = continuation(PROMPT, 6, 100)
    report, (output,) = run(core, runner, StepDelta(1, 1, started=[start(0, [3, 1, 2], 5)]))
    assert output.token_ids.tolist() == expected[:1] and output.starts.tolist() == [0]
    assert (report.num_decode_rows, report.num_prefill_tokens) == (0, 5)
    for number in range(2, 7):
        report, (output,) = run(core, runner, StepDelta(number, 1))
        assert output.token_ids.tolist() == [expected[number - 1]]
        assert report.num_decode_rows == 1
    assert report.finished == [(0, FinishReason.LENGTH, 6)]
    report, outputs = run(core, runner, StepDelta(7, 1))
    assert outputs == [] and report.num_decode_rows == 1, "ended, and still a row until it is acknowledged"
    assert report.decode_counts is not None and report.decode_counts.tolist() == [0]
    report, _ = run(core, runner, StepDelta(8, 1, finished_slots=[0]))
    assert report.num_decode_rows == 0 and core.held_slots() == []


def test_blocks_are_sealed_when_their_kv_is_written() -> None:
    """C2."""
    core, runner = make_core()
    core.add(new())
    seals = []
    for number in range(1, 9):
        delta = StepDelta(number, 1, started=[start(0, [3, 1, 2, 0], 5)] if number == 1 else [])
        report, _ = run(core, runner, delta)
        seals += [
            (number, index, name)
            for index, name in zip(report.sealed_indexes, report.sealed_hashes, strict=True)
        ]
    tokens = np.array(PROMPT + continuation(PROMPT, 8, 100), "<i4").tobytes()
    parent = block_hash(ROOT, tokens[:16])
    # Block 1 holds positions 4 to 7: the third output token is at 7, and its KV is written a step later.
    assert seals[0] == (4, 1, block_hash(parent, tokens[16:32]))


def test_a_chunk_that_does_not_start_at_our_count_is_refused() -> None:
    """L3."""
    core, runner = make_core()
    core.add(new())
    run(core, runner, StepDelta(1, 1, started=[start(0, [1, 2], 2)]))
    report, outputs = run(core, runner, StepDelta(2, 1, chunks=[(0, 3, 2)]))
    assert report.not_run == [(0, NotRunReason.STALE)] and outputs == []
    assert core.table.num_computed[0] == 2


def test_stop_tokens_end_and_min_tokens_hold_them_back() -> None:
    first, second = continuation(PROMPT, 2, 100)
    for min_tokens, count in ((0, 1), (2, 2)):
        core, runner = make_core()
        core.add(
            new(stop_token_ids=frozenset({first, second}), min_tokens=min_tokens - 1 if min_tokens else 0)
        )
        for number in range(1, count + 1):
            report, _ = run(
                core, runner, StepDelta(number, 1, started=[start(0, [1, 2], 5)] if number == 1 else [])
            )
        assert report.finished == [(0, FinishReason.STOP, count)]


def test_a_resumed_attempt_goes_on_counting() -> None:
    """M2."""
    core, runner = make_core()
    output = continuation(PROMPT, 4, 100)
    core.add(new(prompt=PROMPT + output[:3], prior=3, max_tokens=4))
    report, (sent,) = run(core, runner, StepDelta(1, 1, started=[start(0, [1, 2], 8)]))
    assert sent.starts.tolist() == [3] and sent.token_ids.tolist() == output[3:]
    assert report.finished == [(0, FinishReason.LENGTH, 4)]


def test_older_schedulers_and_gaps_are_refused() -> None:
    """I3, K2."""
    core, runner = make_core()
    run(core, runner, StepDelta(1, 5))
    with pytest.raises(StepRefusedError, match="epoch"):
        core.apply(StepDelta(2, 4))
    with pytest.raises(StepRefusedError, match="follows"):
        core.apply(StepDelta(3, 5))


class FailsOn(SimRunner):
    """A simulated model that cannot bear one token."""

    def __init__(self, token: int) -> None:
        super().__init__(INFO)
        self._token = token

    def execute(self, batch: Batch) -> Sampled:
        if self._token in batch.token_ids:
            raise RuntimeError("no such luck")
        return super().execute(batch)

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        raise OSError("no memory")


def test_a_request_that_breaks_the_model_fails_alone() -> None:
    """U1, U2."""
    core, runner = make_core()[0], FailsOn(13)
    prompts = [[1, 2, 3], [13, 2, 3], [4, 5, 6]]
    for slot, prompt in enumerate(prompts):
        core.add(new(slot, prompt))
    starts = [start(slot, [slot], 3) for slot in range(3)]
    report, (output,) = run(core, runner, StepDelta(1, 1, started=starts))
    assert output.token_ids.tolist() == [continuation(prompts[slot], 1, 100)[0] for slot in (0, 2)]
    assert [(slot, reason) for slot, reason, _ in report.finished] == [(1, FinishReason.ERROR)]
    failure = output.finished[0][3]
    assert failure is not None and "no such luck" in failure.message
    report, (output,) = run(core, runner, StepDelta(2, 1))
    assert len(output.token_ids) == 2 and report.exceptions == [(1, 0)]


def test_a_copy_that_fails_within_a_step_ends_the_worker() -> None:
    """X9: the scheduler may have told others already of what it should have brought or saved."""
    core, runner = make_core()[0], FailsOn(99)
    core.add(new())
    delta = StepDelta(1, 1, started=[start(0, [1, 2], 5)], copies=[BlockCopy(0, False, 0, True)])
    with pytest.raises(RunnerBrokenError, match="blocks cannot be copied"):
        run(core, runner, delta)


def test_a_row_without_a_block_does_not_run() -> None:
    core, runner = make_core()
    core.add(new(prompt=[1, 2, 3]))
    run(core, runner, StepDelta(1, 1, started=[start(0, [1], 3)]))
    run(core, runner, StepDelta(2, 1))
    report, outputs = run(core, runner, StepDelta(3, 1))
    assert report.not_run == [(0, NotRunReason.STALE)] and outputs == []


def test_the_outbound_log_keeps_what_was_not_acknowledged() -> None:
    """R7."""
    log = OutboundLog(max_bytes=10)
    for message in (b"one", b"two", b"three"):
        log.append(message)
    assert log.is_full
    log.acknowledge(1)
    assert [message for _, message in log.after(0)] == [b"two", b"three"]
    assert not log.is_full
    log.acknowledge(3)
    assert log.is_empty and log.next_sequence == 4
