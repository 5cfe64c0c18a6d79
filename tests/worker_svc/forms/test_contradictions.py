"""A share of the random pairs of forms and fields: `python -m tests.worker_svc.forms --cases 10000` runs them all."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.worker_svc.forms.bench import NUM_SLOTS, Bench, make_model
from tests.worker_svc.forms.pairs import Pairs
from tests.worker_svc.forms.verdict import kind_of, wrong

NUM_TURNS = 5
KINDS = {"ended STOP", "ended LENGTH", "refused 400 InvalidRequestError", "refused 400 UnsupportedError"}


@pytest.mark.parametrize("with_drafts", [False, True], ids=["plain", "drafts"])
def test_no_pair_of_a_form_and_other_fields_ends_as_a_server_error(tmp_path: Path, with_drafts: bool) -> None:
    """Before, one pair in eight did."""
    bench = Bench(make_model(tmp_path), with_drafts=with_drafts)
    pairs, kinds = Pairs(bench.tokenizer), Counter[str]()
    try:
        with asyncio.Runner() as runner:
            for turn in range(NUM_TURNS):
                first = 20_000 + NUM_SLOTS * (2 * turn + with_drafts)
                for ended in runner.run(bench.serve([pairs.make(first + i) for i in range(NUM_SLOTS)])):
                    kinds[kind_of(ended)] += 1
                    assert not wrong(ended, bench), ended.pair
    finally:
        bench.close()
    assert set(kinds) >= KINDS, "every other way to end is met"
