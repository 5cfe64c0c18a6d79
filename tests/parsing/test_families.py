"""Every parser against outputs generated from known calls: a sample of what `tests.parsing.run` does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend_svc.text.parsing.families import TOOLS as FAMILIES_OF_TOOLS
from frontend_svc.text.parsing.pieces import Tag
from tests.parsing.generator import KINDS, Generator, check
from tests.parsing.reading import plan_of, read
from tests.parsing.run import run_family
from tests.parsing.writers import FAMILIES

NUM_CASES = 42


@pytest.mark.parametrize("name", FAMILIES)
def test_no_call_is_lost_invented_or_leaked(name: str) -> None:
    """LM2, LM4, LM5, LM6."""
    assert run_family(name, NUM_CASES, "ci") == 0


def test_every_family_is_generated() -> None:
    assert {family.tools for family in FAMILIES.values()} | {"llama4_json"} == set(FAMILIES_OF_TOOLS)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(FAMILIES)),
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
)
def test_any_cut_gives_the_same(name: str, seed: int, kind: str) -> None:
    """LM3: streaming equals whole."""
    family = FAMILIES[name]
    check(family, Generator(family, f"hypothesis {seed}").case(kind), random.Random(seed))


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(sorted(FAMILIES)),
    data=st.data(),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    within=st.booleans(),
    is_whole=st.booleans(),
)
def test_any_text_reads_the_same_in_any_pieces(
    name: str, data: st.DataObject, cuts: list[int], within: bool, is_whole: bool
) -> None:
    """LM3: also of what nobody would write."""
    family = FAMILIES[name]
    marks = [Tag(tag) for tag in family.vocabulary]
    words = ["weather", '"name"', '"arguments"', "to=functions.weather", "call:", "```", *'{}[]()",:\\\n x`=']
    parts = data.draw(st.lists(st.sampled_from([*marks, *words]), max_size=40))
    units = [unit for part in parts for unit in ([part] if isinstance(part, Tag) else part)]
    plan = plan_of(family, within=within)
    found, again = (read(plan, units, c, is_whole=is_whole) for c in (cuts, None))
    assert (found.content, found.reasoning, found.calls) == (again.content, again.reasoning, again.calls)
