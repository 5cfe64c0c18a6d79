"""The board in a terminal: rates, what is drawn, and the command before a real scheduler."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import subprocess
import sys
from typing import Any

import pytest

from signalbox.board.rates import Rates
from signalbox.board.snapshot import (
    Board,
    Checkpoints,
    Disk,
    Group,
    Percentiles,
    Queue,
    Request,
    Times,
    Worker,
)
from signalbox.cli.safe_mode import SafeMode
from tests.scheduler_svc.attached import dial, make_hello, serve

pytest.importorskip("rich", reason="rich is not installed: pip install 'signalbox[terminal]'")

from rich.console import Console

from signalbox.cli.board_view import render

NONE = Percentiles(0, 0, 0, 0)
WORKER = Worker(
    worker_id="w", model="m", attached=True, draining=False, num_running=2, num_preempted=0, num_inflight_steps=1,
    num_blocks=4, num_free_blocks=1, num_cached_blocks=1, num_host_blocks=8, num_used_host_blocks=3,
    cells=bytes([0xF0, 0xF0, 0x0F, 0x00]), blocks_per_cell=1, num_steps=5, num_preemptions=7,
    num_output_tokens=1000, num_prefill_tokens=300, num_prefix_query_tokens=200, num_prefix_hit_tokens=50,
    step_us=1000, model_us=750,
)  # fmt: skip
REQUEST = Request("cmpl-1234567890abcdef", "w", 3, "decode", 1, "[red]acme", 10, 20, 11, 22, 0, 2, 0, 1500)


def make_board(at_ms: int = 0, epoch: int = 1, tokens: int = 1000) -> Board:
    worker = dataclasses.replace(WORKER, num_output_tokens=tokens)
    times = Times(Percentiles(5, 20, 30, 1500), NONE)
    return Board(epoch, at_ms, 4, 1, (Queue(0, "", 4, 2500),), (worker,), (REQUEST,), times)


def draw(board: Board, rates: Rates) -> str:
    console = Console(width=160, color_system=None, file=io.StringIO(), record=True)
    console.print(render(board, rates, "here:1"))
    return console.export_text()


def test_rates_are_of_the_last_two_seconds() -> None:
    rates = Rates()
    for number, tokens in enumerate((1000, 1000, 1000, 1100, 1200, 1300, 1400)):
        rates.add(make_board(at_ms=500 * number, tokens=tokens))
    assert rates.output_tokens_s == 200  # 400 in the last 2 s
    assert rates.model_share == 0.75


def test_a_worker_that_attaches_anew_does_not_count_backwards() -> None:
    rates = Rates()
    for number, tokens in enumerate((1000, 10, 110)):
        rates.add(make_board(at_ms=500 * number, tokens=tokens))
    assert rates.output_tokens_s == 100


def test_another_scheduler_begins_anew() -> None:
    rates = Rates()
    rates.add(make_board(at_ms=1000))
    rates.add(make_board(at_ms=10, epoch=2))
    assert rates.output_tokens_s is None


def test_safe_mode_is_drawn_while_it_is_on() -> None:
    board = dataclasses.replace(
        make_board(), safe_mode=SafeMode(budget_level=1, num_waiting=7, burn_rate=12.0)
    )
    assert "priority numbers above 1 are suspended by the error budget; 7 requests wait" in draw(
        board, Rates()
    )
    assert "safe mode" not in draw(make_board(), Rates())


def test_what_is_drawn() -> None:
    text = draw(make_board(), Rates())
    for words in (
        "██▒·",
        "2 held, 1 cached of 4, host 3 of 8",
        "p50 20 ms, p99 1.5 s",
        "25%",
        "10 + 11",
        "2.5 s",
    ):
        assert words in text, words


def test_groups_and_checkpoints_have_a_bar_each() -> None:
    groups = (Group("window", 512, 80, 60, 1), Group("chunk", 8192, 8, 0, 0))
    kept = Checkpoints(64, 16, 8, 6, 1200, 30, 4, num_host_checkpoints=40, num_used_host_checkpoints=9)
    disk = Disk(1234, True, 0, 0, 0, 0)
    worker = dataclasses.replace(WORKER, groups=groups, checkpoints=kept, disk=disk, role="decode")
    text = draw(dataclasses.replace(make_board(), workers=(worker,)), Rates())
    for words in (
        "│ " + "█" * 12 + "▒" + "·" * 35,  # of 48; what is there at all has one
        "window of 512: 19 held, 1 cached of 80",
        "│ " + "█" * 48,
        "chunk of 8,192: 8 held, 0 cached of 8",
        "│ " + "█" * 6 + "▒" * 18 + "·" * 24,
        "states at each 64: 2 held, 6 cached of 16",
        "host 9 of 40",
        "disk 1,234 (off)",
        "w m, decode",
        "made 1,200, used 30, evicted 4",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "w m"),
        ({"draining": True}, "w draining"),
        ({"health": "hung", "draining": True}, "w hung"),
        ({"num_unheard_by": 1}, "w unreachable"),
        ({"health": "away", "attached": False}, "w lost"),
    ],
)
def test_what_is_wrong_with_a_worker_stands_in_its_title(fields: dict[str, Any], word: str) -> None:
    """E6 to E8: suspects are seen."""
    board = dataclasses.replace(make_board(), workers=(dataclasses.replace(WORKER, **fields),))
    assert f" {word} " in draw(board, Rates())


def test_names_are_never_markup() -> None:
    assert "[red]acme" in draw(make_board(), Rates())


def test_a_large_map_shrinks_to_its_panel() -> None:
    worker = dataclasses.replace(WORKER, cells=bytes([0xF0]) * 2048 + bytes([0x00]) * 2048)
    board = dataclasses.replace(make_board(), workers=(worker,))
    text = draw(board, Rates())
    assert text.count("█") - 1 == text.count("·") - 1 > 100  # one of each stands in the legend


def run_top(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "signalbox", "top", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


async def test_top_once_prints_what_a_scheduler_has() -> None:
    async with serve() as (_, address), dial(address) as stub:
        worker = stub.AttachWorker()
        await worker.write(make_hello("a-worker"))
        await worker.read()
        done = await asyncio.to_thread(run_top, "--once", "--scheduler", address)
        worker.cancel()
    assert done.returncode == 0, done.stderr
    assert "a-worker" in done.stdout
    assert "0 held, 0 cached of 64" in done.stdout


def test_top_says_when_nobody_answers_and_when_there_is_no_terminal() -> None:
    done = run_top("--once", "--scheduler", "127.0.0.1:1")
    assert done.returncode == 1
    assert "nothing answers at 127.0.0.1:1" in done.stderr
    done = run_top("--scheduler", "127.0.0.1:1")
    assert done.returncode == 1
    assert "--once" in done.stderr
