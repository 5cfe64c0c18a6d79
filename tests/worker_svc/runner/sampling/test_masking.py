"""Masks in the sampler: what a form forbids cannot be chosen, and nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.worker_svc.runner.sampling.sampler_harness import make_batch, run
from worker_svc.core.batch import Batch, Sampled
from worker_svc.core.faults.isolation import execute_isolated
from worker_svc.core.requests.masks import INLINE, MaskedRow, MaskJob, MaskMaker, Masks
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.sampling.masking import mask_logits
from worker_svc.runner.sampling.sampler import sample
from worker_svc.steps.mask_pool import MaskPool

pytestmark = pytest.mark.usefixtures("draws_with")
V = 75  # no multiple of 32
GREEDY = SamplingParams(temperature=0.0)
NONE = np.empty(0, np.int32)
ALLOWED = {0: {3, 40, 74}, 2: {31, 32}}
"""By row; the rows 1 and 3 are free."""


@dataclass
class Fixed:
    """An automaton that always allows the same."""

    allowed: set[int]
    is_complete: bool = False
    work_us: int = 0

    def advance(self, token: int) -> None:
        assert token in self.allowed

    def legal_drafts(self, drafts: NDArray[np.int32]) -> int:
        return 0

    def fill(self, drafts: NDArray[np.int32], masks: NDArray[np.uint32]) -> None:
        for token in self.allowed:
            masks[:, token // 32] |= np.uint32(1 << token % 32)


def constrained(params: SamplingParams, maker: MaskMaker = INLINE, **columns: list[int]) -> Batch:
    """Four rows, of which `ALLOWED` are masked."""
    batch = make_batch([params] * 4, **columns)  # type: ignore[arg-type]
    rows = [
        MaskedRow(row, MaskJob(row, Fixed(allowed), NONE, -(-V // 32)), first)
        for first, (row, allowed) in enumerate(ALLOWED.items())
    ]
    batch.masks = Masks(rows, np.array([0, -1, 1, -1], np.int32), len(rows), -(-V // 32), maker)
    batch.mask_index = batch.masks.index
    for row in ALLOWED:
        batch.sampling.follows_form[batch.slots[row]] = True
    return batch


def logits(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).normal(0, 3, (4, V))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_greedy_row_takes_the_best_of_what_is_allowed(dtype: torch.dtype) -> None:
    given = logits(dtype)
    tokens = sample(given.clone(), constrained(GREEDY)).token_ids.tolist()
    free = run(given, [GREEDY] * 4).token_ids.tolist()
    for row in range(4):
        allowed = sorted(ALLOWED.get(row, range(V)))
        assert tokens[row] == allowed[int(given[row, allowed].float().argmax())]
    assert (tokens[1], tokens[3]) == (free[1], free[3])


@pytest.mark.parametrize(
    "params",
    [SamplingParams(), SamplingParams(top_k=40), SamplingParams(top_p=0.3), SamplingParams(temperature=50.0)],
)
def test_drawn_tokens_are_allowed_and_free_rows_stay_as_they_are(params: SamplingParams) -> None:
    given, seen = logits(), set()
    for position in range(60):
        positions = [position] * 4
        tokens = sample(given.clone(), constrained(params, output_positions=positions)).token_ids.tolist()
        free = run(given, [params] * 4, output_positions=positions).token_ids.tolist()
        assert all(tokens[row] in allowed for row, allowed in ALLOWED.items())
        assert (tokens[1], tokens[3]) == (free[1], free[3])
        seen.add(tokens[0])
    assert params.temperature < 50 or seen == ALLOWED[0], "nothing that is allowed is lost"


@pytest.mark.parametrize("params", [GREEDY, SamplingParams()])
def test_a_form_and_allowed_tokens_hold_both(params: SamplingParams) -> None:
    both = SamplingParams(temperature=params.temperature, allowed_token_ids=(1, 3, 31, 74))
    seen = set()
    for position in range(60):
        tokens = sample(logits(), constrained(both, output_positions=[position] * 4)).token_ids.tolist()
        assert tokens[2] == 31
        assert {tokens[1], tokens[3]} <= {1, 3, 31, 74}
        seen.add(tokens[0])
    assert seen == ({3, 74} if params.temperature else seen & {3, 74})


def test_log_probabilities_are_the_models_own() -> None:
    given = logits()
    sampled = sample(given.clone(), constrained(SamplingParams(temperature=0.0, num_logprobs=2)))
    expected = given.log_softmax(-1)
    for row, token in enumerate(sampled.token_ids.tolist()):
        assert sampled.logprobs[row].logprob == pytest.approx(float(expected[row, token]), abs=1e-5)
    assert sampled.logprobs[0].top_token_ids[0] == int(given[0].argmax())


def test_columns_beyond_the_vocabulary_are_forbidden() -> None:
    batch = constrained(GREEDY)
    scores = torch.zeros(4, V + 40)
    mask_logits(scores, batch, np.arange(4))
    assert torch.isfinite(scores[0]).nonzero()[:, 0].tolist() == sorted(ALLOWED[0])
    assert torch.isfinite(scores[1]).all()


def test_parts_of_a_batch_keep_their_own_masks() -> None:
    batch, given = constrained(GREEDY), logits()

    class FailsTogether:
        """Runs single rows only."""

        def execute(self, part: Batch) -> Sampled:
            if len(part.slots) > 1:
                raise RuntimeError("too many")
            row = int(np.flatnonzero(batch.slots == part.slots[0])[0])
            return sample(given[row : row + 1].clone(), part)

        def check(self) -> None:
            pass

    sampled, failed = execute_isolated(FailsTogether(), batch)  # type: ignore[arg-type]
    assert not failed
    assert sampled.token_ids.tolist() == sample(given.clone(), constrained(GREEDY)).token_ids.tolist()


def test_the_sampler_waits_for_masks_that_are_filled_elsewhere() -> None:
    """G6."""
    pool, given = MaskPool(), logits()
    tokens = sample(given.clone(), constrained(GREEDY, pool)).token_ids.tolist()
    pool.close()
    assert tokens == sample(given.clone(), constrained(GREEDY)).token_ids.tolist()


def test_a_mask_without_a_token_is_a_failure_of_its_row_alone() -> None:
    rows = [
        MaskedRow(5, MaskJob(5, Fixed(set()), NONE, 1), 0),
        MaskedRow(7, MaskJob(7, Fixed({1}), NONE, 1), 1),
        MaskedRow(8, MaskJob(8, None, NONE, 1), 2),
    ]
    masks = Masks(rows, np.arange(3, dtype=np.int32), 3, 1)
    assert masks.bits()[1].tolist() == [2]
    assert set(masks.failures) == {5, 8} and "no token" in str(masks.failures[5])
