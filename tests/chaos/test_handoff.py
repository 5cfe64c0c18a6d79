"""Requests of all kinds are moved by hand, by a drain and by the end of their worker, and whoever reads them notices
nothing but a pause (HO10, HO11, HO12, HO14). A worker that dies in the middle of hand-offs costs what it had, and no
output (HO8)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.chaos.__main__ import TREE
from tests.chaos.handoff.asks import make_all_kinds
from tests.chaos.handoff.long import PLANNED, make_acts, make_shape, of_ranks
from tests.chaos.handoff.scenarios import Reference, make_reference, run
from tests.chaos.kinds import Ask
from tests.chaos.ring import Ring, open_ring

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]

NUM_STREAMS, NUM_TOKENS, MOVES = 16, 150, 4


@pytest.fixture(scope="module")
def asks() -> list[Ask]:
    return make_all_kinds(NUM_STREAMS, NUM_TOKENS)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def ring() -> AsyncIterator[Ring]:
    async with open_ring(make_shape(NUM_STREAMS, NUM_TOKENS), TREE) as ring:
        yield ring


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def reference(ring: Ring, asks: list[Ask]) -> Reference:
    return await make_reference(ring, asks)


@pytest.mark.parametrize("name", [name for name in make_acts(MOVES) if name != "rolling restart"])
async def test_streams_go_on_elsewhere(ring: Ring, asks: list[Ask], reference: Reference, name: str) -> None:
    result = await run(ring, name, asks, reference, make_acts(MOVES)[name])
    print(result.record())
    assert result.tally.is_right, result.record()
    assert result.tally.num_streams == NUM_STREAMS
    if name in PLANNED:
        assert result.num_moved > 0, "nothing was handed over"
        assert not result.tally.losses and result.num_computed_again == 0, result.record()


async def test_streams_of_workers_of_two_ranks_go_on_elsewhere() -> None:
    """RK11: blocks in parts, in a ring of its own."""
    asks = make_all_kinds(8, NUM_TOKENS)
    async with open_ring(of_ranks(make_shape(8, NUM_TOKENS)), TREE) as ring:
        result = await run(ring, "moves", asks, await make_reference(ring, asks), make_acts(MOVES)["moves"])
    print(result.record())
    assert result.tally.is_right, result.record()
    assert result.num_moved > 0 and not result.tally.losses, result.record()
    assert result.num_computed_again == 0, result.record()
