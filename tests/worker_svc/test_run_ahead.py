"""The step loop runs ahead of the tokens: with a simulated device that computes in a thread of its own, and with the
GPU's runner on the CPU. What clients get is what they get of steps in turn."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from signalbox.protocol.enums import FinishReason
from signalbox.v1 import generation_pb2
from tests.simulation.ahead import DeviceError, LaunchedSim, Mask
from tests.simulation.penalties import continuation_without_repeats
from tests.worker_svc.drafting.local_ring import Client
from tests.worker_svc.threaded_ring import WAIT_S, InTurn, ThreadedRing, ThreadedSimRunner
from tools.make_random_model import make_model
from worker_svc.core.batch import Batch, ModelRunner, RunnerInfo
from worker_svc.core.faults.isolation import RunnerBrokenError
from worker_svc.runner.cuda.runner import CudaRunner, Launched
from worker_svc.runner.sim.failures import SimFailures
from worker_svc.runner.sim.model import SimTiming, continuation

VOCAB = 200
MANY_BLOCKS, FEW_BLOCKS = 400, 22
DEPTHS = pytest.mark.parametrize("depth", [1, 2, 4])
NUM_SLOTS = 16
BAD = VOCAB - 1
"""A token that no other prompt has."""


@dataclass(frozen=True)
class Wish:
    """What a client asks for."""

    prompt: list[int]
    max_tokens: int
    sampling: generation_pb2.SamplingParams
    leaves_after: int | None = None
    """Its stop string is found at so many output tokens."""


@contextmanager
def threaded_ring(runner: ModelRunner, depth: int) -> Iterator[ThreadedRing]:
    ring = ThreadedRing(runner, depth=depth)
    try:
        yield ring
    finally:
        ring.close()


def serve(ring: ThreadedRing, wishes: list[Wish]) -> list[Client]:
    """Sends one wish with every other step, until all have ended. Whoever leaves gets no more."""
    clients: list[Client] = []
    for number in range(5000):
        if number % 2 == 0 and len(clients) < len(wishes):
            wish = wishes[len(clients)]
            clients.append(ring.submit(wish.prompt, wish.max_tokens, wish.sampling))
        for client, wish in zip(clients, wishes, strict=False):
            if not client.ends and wish.leaves_after and len(client.output) >= wish.leaves_after:
                ring.leave(client)
        if len(clients) == len(wishes) and all(client.ends for client in clients):
            return clients
        ring.step()
    raise AssertionError("the requests do not end")


def simulated(num_blocks: int = MANY_BLOCKS, failures: SimFailures | None = None) -> ThreadedSimRunner:
    info = RunnerInfo("sim", num_blocks, 4, 64, VOCAB, eos_token_ids=())
    return ThreadedSimRunner(info, SimTiming(base_ms=2.0), failures)


def draw_wish(rng: random.Random) -> Wish:
    return Wish(
        prompt=[rng.randrange(VOCAB) for _ in range(rng.randrange(1, 20))],
        max_tokens=rng.randrange(1, 30),
        sampling=generation_pb2.SamplingParams(
            stop_token_ids=rng.sample(range(VOCAB), rng.choice((0, 0, 12))),
            repetition_penalty=2.0 if rng.random() < 0.1 else None,
        ),
        leaves_after=rng.choice((None, None, None, rng.randrange(1, 12))),
    )


def expected(wish: Wish) -> tuple[list[int], FinishReason]:
    """Of an undisturbed run on the simulated model."""
    penalised = wish.sampling.HasField("repetition_penalty")
    output = (continuation_without_repeats if penalised else continuation)(
        wish.prompt, wish.max_tokens, VOCAB
    )
    for count, token in enumerate(output, start=1):
        if token in wish.sampling.stop_token_ids:
            return output[:count], FinishReason.STOP
    return output, FinishReason.LENGTH


@DEPTHS
@pytest.mark.parametrize("num_blocks", [MANY_BLOCKS, FEW_BLOCKS])
def test_random_requests_get_the_tokens_of_steps_in_turn(depth: int, num_blocks: int) -> None:
    """O4."""
    rng, runner = random.Random(depth), simulated(num_blocks)
    wishes = [draw_wish(rng) for _ in range(40)]
    with threaded_ring(runner, depth) as ring:
        clients = serve(ring, wishes)
        num_preemptions = ring.worker.stats.num_preemptions
    for client, wish in zip(clients, wishes, strict=True):
        output, reason = expected(wish)
        if client.ends == [reason]:
            assert client.output == output
        else:
            assert wish.leaves_after, "only whoever left has another end"
            assert client.output == output[: len(client.output)]
            assert len(client.output) >= min(wish.leaves_after, len(output))
    assert (runner.num_ahead > 0) == (depth > 1)
    assert (num_preemptions > 0) == (num_blocks == FEW_BLOCKS)


def test_a_request_that_ends_in_flight_is_overrun_and_its_slot_serves_the_next() -> None:
    """O2, O6: each request stops at its fifth token, which the loop learns after the next step was launched."""
    runner, prompts = simulated(), [[n, n + 1, n + 2] for n in range(0, 60, 3)]
    stops = [continuation(prompt, 5, VOCAB)[-1] for prompt in prompts]
    wishes = [
        Wish(prompt, 20, generation_pb2.SamplingParams(stop_token_ids=[stop]))
        for prompt, stop in zip(prompts, stops, strict=True)
    ]
    with threaded_ring(runner, 2) as ring:
        clients = serve(ring, wishes)
    for client, wish in zip(clients, wishes, strict=True):
        assert client.ends == [FinishReason.STOP]
        assert client.output == expected(wish)[0]
    assert runner.num_decode_rows > sum(len(client.output) - 1 for client in clients), "nobody was overrun"


def test_what_launched_steps_lose_is_computed_again() -> None:
    """O6."""
    rng, runner = random.Random(9), simulated()
    runner.fail_every = 3
    wishes = [draw_wish(rng) for _ in range(10)]
    with threaded_ring(runner, 2) as ring:
        clients = serve(ring, wishes)
    for client, wish in zip(clients, wishes, strict=True):
        assert client.output == expected(wish)[0][: len(client.output)]
        assert client.ends == [expected(wish)[1]] or wish.leaves_after


def test_a_device_that_cannot_be_asked_does_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(launched: LaunchedSim) -> bool:
        raise DeviceError("nobody knows")

    monkeypatch.setattr(LaunchedSim, "is_done", property(fail))
    rng, runner = random.Random(9), simulated()
    runner.fail_every = 3
    wishes = [replace(draw_wish(rng), leaves_after=None) for _ in range(3)]
    with threaded_ring(runner, 2) as ring:
        clients = serve(ring, wishes)
    assert [(client.output, client.ends) for client in clients] == [
        (expected(wish)[0], [expected(wish)[1]]) for wish in wishes
    ]


def plain_wishes(count: int) -> list[Wish]:
    rng = random.Random(count)
    return [
        Wish([rng.randrange(BAD) for _ in range(6)], 12, generation_pb2.SamplingParams())
        for _ in range(count)
    ]


def test_a_prompt_that_the_device_fails_on_fails_alone() -> None:
    """O6, U1: launched steps with it are lost; run again in turn, its row is found."""
    runner, wishes = simulated(failures=SimFailures(fail_token=BAD)), plain_wishes(6)
    wishes[2].prompt[-1] = BAD
    with threaded_ring(runner, 2) as ring:
        clients = serve(ring, wishes)
    for number, (client, wish) in enumerate(zip(clients, wishes, strict=True)):
        if number == 2:
            assert client.output == [] and client.ends == [FinishReason.ERROR]
        else:
            assert (client.output, client.ends) == (expected(wish)[0], [expected(wish)[1]])
    assert runner.num_ahead > 0


def test_a_launched_step_that_fails_as_a_whole_ends_its_requests_and_no_later_ones() -> None:
    """O6, U1."""
    runner, wishes = simulated(failures=SimFailures(fail_step=10)), plain_wishes(8)
    with threaded_ring(runner, 2) as ring:
        clients = serve(ring, wishes)
    failed = [client for client in clients if client.ends == [FinishReason.ERROR]]
    assert failed and clients[-1] not in failed
    for client, wish in zip(clients, wishes, strict=True):
        output, reason = expected(wish)
        assert client.output == output[: len(client.output)]
        assert client in failed or (client.output, client.ends) == (output, [reason])


def test_a_device_that_is_lost_under_a_launched_step_ends_the_loop() -> None:
    """It ends no request: these go on elsewhere."""
    runner = simulated(failures=SimFailures(break_step=2))
    ring = ThreadedRing(runner, depth=2)
    for wish in plain_wishes(2):
        ring.submit(wish.prompt, wish.max_tokens, wish.sampling)
    ring.send()
    ring.loop.stop(WAIT_S)
    assert isinstance(ring.loop.failure, RunnerBrokenError)
    assert runner.num_ahead == 2
    report = ring.take()
    assert report is not None and (report.step_id, list(report.finished_reasons)) == (1, [])
    with pytest.raises(queue.Empty):
        ring.take(timeout_s=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("tiny-llama", tmp_path_factory.mktemp("tiny-llama"), seed=1)


class CountingRunner(CudaRunner):
    """Counts the rows that ran on a token that the host did not know."""

    num_ahead = 0

    def launch(self, batch: Batch, in_flight: Mask | None = None) -> Launched:
        self.num_ahead += 0 if in_flight is None else int(in_flight.sum())
        return super().launch(batch, in_flight)


def make_runner(model: Path, num_blocks: int) -> CountingRunner:
    return CountingRunner(
        model,
        num_slots=NUM_SLOTS,
        served_model_name="tiny",
        dtype="float32",
        num_blocks=num_blocks,
        block_size=4,
        max_model_len=80,
        threads=1,
    )


def sampled_wishes() -> list[Wish]:
    """Greedy and drawn, with limits, a penalty and log-probabilities among them."""
    rng = random.Random(3)
    kinds = [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": 5},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 7},
        {"temperature": 0.0},
        {"temperature": 0.0, "repetition_penalty": 1.3},
        {"temperature": 0.7, "min_p": 0.02, "seed": 9},
        {"temperature": 0.0, "logprobs": 2},
        {"temperature": 1.0, "seed": 6},
    ]
    return [
        Wish(
            [rng.randrange(500) for _ in range(rng.randrange(1, 30))],
            rng.randrange(8, 28),
            generation_pb2.SamplingParams(**kind),  # type: ignore[arg-type]
        )
        for kind in kinds
    ]


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("num_blocks", [200, 22])
def test_a_real_model_gives_the_same_tokens(model: Path, depth: int, num_blocks: int) -> None:
    wishes = sampled_wishes()
    with threaded_ring(InTurn(make_runner(model, 200)), 1) as ring:
        in_turn = serve(ring, wishes)
    stops = [client.output[len(client.output) // 2] for client in in_turn[:3]]
    for wish, stop in zip(wishes, stops, strict=False):
        wish.sampling.stop_token_ids.append(stop)
    runner = make_runner(model, num_blocks)
    with threaded_ring(runner, depth) as ring:
        ahead = serve(ring, wishes)
        num_preemptions = ring.worker.stats.num_preemptions
    for number, (client, other, wish) in enumerate(zip(ahead, in_turn, wishes, strict=True)):
        stop = stops[number] if number < len(stops) else None
        whole = other.output if stop is None else other.output[: other.output.index(stop) + 1]
        assert client.output == whole, wish.sampling
        assert len(client.ends) == 1
    assert (num_preemptions > 0) == (num_blocks == 22)
    assert runner.num_ahead > 0
