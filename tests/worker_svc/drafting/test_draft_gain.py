"""What drafts are worth by a model of a machine: they cost next to nothing where they do not pay, quiet or busy, and
where they do nearly all that they can give is taken."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worker_svc.drafting.draft_load import (
    DRAFT_MODEL,
    NGRAM,
    Load,
    Machine,
    Noise,
    Rate,
    busy,
    noisy,
    quiet,
)

LEAST = 0.97
WARM_UP = 200
MACHINES = pytest.mark.parametrize("machine", [DRAFT_MODEL, NGRAM], ids=["draft model", "n-gram"])
NOISES = pytest.mark.parametrize("noise", [quiet, noisy, busy])


def always(rate: float) -> Rate:
    return lambda num_output: rate


def speed(machine: Machine, rate: Rate, streams: int, noise: Noise, num_steps: int = 2000) -> float:
    """The mean of two seeds, without the first steps."""
    loads = [Load(machine, lambda _: rate, streams, noise, seed=seed) for seed in range(2)]
    for load in loads:
        load.run(WARM_UP)
    return float(np.mean([load.run(num_steps) for load in loads]))


@pytest.mark.sampled
@MACHINES
@NOISES
@pytest.mark.parametrize("streams", [1, 8])
@pytest.mark.parametrize("rate", [0.05, 0.2, 0.35])
def test_drafts_that_do_not_pay_cost_next_to_nothing(
    machine: Machine, noise: Noise, streams: int, rate: float
) -> None:
    """D9."""
    assert speed(machine, always(rate), streams, noise) > LEAST


@pytest.mark.sampled
@NOISES
@pytest.mark.parametrize(("streams", "rate", "best"), [(1, 0.7, 1.61), (8, 0.7, 1.39), (8, 0.9, 1.90)])
def test_drafts_that_pay_give_most_of_what_they_can(
    noise: Noise, streams: int, rate: float, best: float
) -> None:
    """`best`: with the right number of drafts in each step."""
    share = (speed(DRAFT_MODEL, always(rate), streams, noise) - 1) / (best - 1)
    assert share > (0.35 if noise is busy else 0.8)


@pytest.mark.sampled
@MACHINES
@NOISES
@pytest.mark.parametrize("streams", [1, 8])
def test_good_requests_among_bad_ones_slow_down_nobody(machine: Machine, noise: Noise, streams: int) -> None:
    load = Load(machine, lambda number: always(0.8 if number % 2 else 0.05), streams, noise)
    load.run(WARM_UP)
    assert load.run(2000) > (1.05 if streams == 1 else LEAST)


@pytest.mark.sampled
@MACHINES
@NOISES
@pytest.mark.parametrize("streams", [1, 8])
def test_drafts_that_become_right_are_found_in_time(machine: Machine, noise: Noise, streams: int) -> None:
    load = Load(machine, lambda _: lambda num_output: 0.05 if load.num_steps < 1500 else 0.9, streams, noise)
    assert load.run(1500) > LEAST
    load.run(1000)
    assert load.run(200) > 1.2


@NOISES
def test_a_long_request_whose_drafts_become_right_is_found_in_time(noise: Noise) -> None:
    load = Load(
        DRAFT_MODEL,
        lambda _: lambda num_output: 0.05 if num_output < 1000 else 0.9,
        1,
        noise,
        output_tokens=10000,
    )
    assert load.run(1000) > LEAST
    load.run(1000)
    assert load.run(200) > 1.2


@pytest.mark.sampled
@MACHINES
@NOISES
@pytest.mark.parametrize("streams", [1, 8])
def test_drafts_that_become_wrong_are_dropped(machine: Machine, noise: Noise, streams: int) -> None:
    load = Load(machine, lambda _: lambda num_output: 0.9 if load.num_steps < 300 else 0.05, streams, noise)
    load.run(300)
    before = load.num_drafted
    load.run(100)
    assert load.num_drafted - before < 150 * streams, "of 400"
    assert load.run(1500) > LEAST


def test_what_a_draft_model_computes_first_counts() -> None:
    """Long prompts and short outputs: drafts are right and would pay, were it not for the catching up."""
    load = Load(DRAFT_MODEL, lambda _: always(0.7), 8, quiet, prompt_tokens=2000, output_tokens=24)
    load.run(WARM_UP)
    assert load.run(2000) > LEAST
