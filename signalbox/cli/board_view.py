"""The board as rich draws it in a terminal. Without colours too: each state of a block has a sign of its own."""

from __future__ import annotations

from collections.abc import Iterable

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from signalbox.board.rates import Rates
from signalbox.board.snapshot import Board, Percentiles, Request, Worker
from signalbox.cli.safe_mode import describe

MAP_COLUMNS = 48
MAP_ROWS = 6
HELD, CACHED, FREE = ("█", "blue"), ("▒", "yellow"), ("·", "bright_black")
BAR_CHARS = 12
MAX_ROWS = 24
PHASE_STYLES = {
    "decode": "blue",
    "prefill": "green",
    "preempted": "red",
    "held": "red",
    "displaced": "red",
    "suspended": "red",
    "frozen": "yellow",
}


def render(board: Board, rates: Rates, scheduler: str) -> RenderableType:
    """The whole board as one text."""
    return Group(
        Text(f"signalbox top, scheduler {scheduler}", style="bold"),
        *_safe_mode(board),
        _figures(board, rates),
        Columns([_worker(worker) for worker in board.workers], padding=(0, 1)),
        _legend(),
        *_queue(board),
        *_requests(board),
    )


def _safe_mode(board: Board) -> Iterable[RenderableType]:
    if board.safe_mode.level is not None:
        yield Text(describe(board.safe_mode), "red")


def _figures(board: Board, rates: Rates) -> Table:
    def total(name: str) -> int:
        return sum(getattr(worker, name) for worker in board.workers)

    table = Table.grid(padding=(0, 3))
    queried = total("num_prefix_query_tokens")
    hits = f"{total('num_prefix_hit_tokens') / queried:.0%}" if queried else "-"
    share = "-" if rates.model_share is None else f"{rates.model_share:.0%}"
    cells = [
        ("running", f"{total('num_running'):,}"),
        ("waiting", f"{board.num_waiting:,}"),
        ("output tok/s", _rate(rates.output_tokens_s)),
        ("prompt tok/s", _rate(rates.prefill_tokens_s)),
        ("output tokens", f"{total('num_output_tokens'):,}"),
        ("first token", _times(board.times.first_token)),
        ("inter-token", _times(board.times.inter_token)),
        ("prefix hits", hits),
        ("preemptions", f"{total('num_preemptions'):,}"),
        ("steps in flight", f"{total('num_inflight_steps'):,}"),
        ("model, of a step", share),
        ("frontends", f"{board.num_frontends:,}"),
    ]
    for start in range(0, len(cells), 4):
        row = [part for name, value in cells[start : start + 4] for part in (Text(name, "dim"), Text(value))]
        table.add_row(*row)
    return table


def _worker(worker: Worker) -> Panel:
    state = worker.trouble or ("draining" if worker.draining else worker.model)
    state += f", {worker.role}" if worker.role != "both" else ""
    state += f", {worker.num_ranks} ranks" if worker.num_ranks > 1 else ""
    lines = Text()
    for sign, style in map(_cell, _shrink(worker.cells, MAP_COLUMNS * MAP_ROWS)):
        if lines.plain and not (len(lines.plain) + 1) % (MAP_COLUMNS + 1):
            lines.append("\n")
        lines.append(sign, style)
    counts = f"{worker.num_held_blocks:,} held, {worker.num_cached_blocks:,} cached of {worker.num_blocks:,}"
    if worker.num_host_blocks:
        counts += f", host {worker.num_used_host_blocks:,} of {worker.num_host_blocks:,}"
    lines.append(f"\n{counts}", "dim")
    if worker.disk is not None:
        lines.append(f"\ndisk {worker.disk.num_blocks:,}" + (" (off)" if worker.disk.is_off else ""), "dim")
    for line in _groups(worker):
        lines.append("\n").append_text(line)
    return Panel(
        lines,
        title=Text.assemble(f"{worker.worker_id} ", (state, "red" if worker.trouble else "")),
        width=MAP_COLUMNS + 4,
    )


def _groups(worker: Worker) -> Iterable[Text]:
    """A bar and its counts per group of layers beside the map's, and for checkpoints."""
    for group in worker.groups:
        held, cached, of = group.num_held_blocks, group.num_cached_blocks, group.num_blocks
        yield _shares(held, cached, of)
        yield Text(f"{group.name}: {held:,} held, {cached:,} cached of {of:,}", "dim")
        yield from _host(group.num_used_host_blocks, group.num_host_blocks)
    kept = worker.checkpoints
    if kept is not None:
        held, cached, of = kept.num_held_checkpoints, kept.num_cached_checkpoints, kept.num_checkpoints
        yield _shares(held, cached, of)
        yield Text(f"{kept.name}: {held:,} held, {cached:,} cached of {of:,}", "dim")
        yield from _host(kept.num_used_host_checkpoints, kept.num_host_checkpoints)
        yield Text(f"made {kept.num_made:,}, used {kept.num_used:,}, evicted {kept.num_evicted:,}", "dim")


def _host(used: int, of: int) -> Iterable[Text]:
    if of:
        yield Text(f"host {used:,} of {of:,}", "dim")


def _shares(held: int, cached: int, of: int) -> Text:
    """A bar of what is held, cached and free. What is there at all has one sign at least."""
    bar = Text()
    for count, (sign, style) in ((held, HELD), (cached, CACHED)):
        length = min(-(-count * MAP_COLUMNS // of), MAP_COLUMNS - len(bar))
        bar.append(sign * length, style)
    return bar.append(FREE[0] * (MAP_COLUMNS - len(bar)), FREE[1])


def _shrink(cells: bytes, most: int) -> list[tuple[int, int]]:
    """Levels (held, cached) of at most `most` cells; where cells become one, their mean."""
    size = -(-len(cells) // most)
    groups = [cells[start : start + size] for start in range(0, len(cells), size)]
    return [
        (-(-sum(c >> 4 for c in group) // len(group)), -(-sum(c & 15 for c in group) // len(group)))
        for group in groups
    ]


def _cell(levels: tuple[int, int]) -> tuple[str, str]:
    """Sign and style of what most of a cell is."""
    held, cached = levels
    if not held and not cached:
        return FREE
    return HELD if held >= cached else CACHED


def _legend() -> Text:
    pairs = ((*HELD, "held"), (*CACHED, "cached"), (*FREE, "free"))
    return Text("  ").join(Text.assemble((sign, style), f" {name}") for sign, style, name in pairs)


def _queue(board: Board) -> Iterable[RenderableType]:
    if not board.queues:
        return
    table = _table(("class", "tenant"), ("waiting", "oldest"))
    for queue in board.queues:
        row = (str(queue.priority), queue.tenant or "-", f"{queue.num_waiting:,}", _ms(queue.oldest_ms))
        table.add_row(*map(Text, row))
    yield table


def _requests(board: Board) -> Iterable[RenderableType]:
    if not board.requests:
        return
    heads = ("worker", "slot", "request", "class", "tenant", "phase", "progress")
    table = _table(heads, ("tokens", "blocks", "cached", "preempted", "age"))
    for request in board.requests[:MAX_ROWS]:
        table.add_row(*_row(request))
    yield table
    num_more = sum(w.num_running + w.num_preempted for w in board.workers) - min(
        len(board.requests), MAX_ROWS
    )
    if num_more > 0:
        yield Text(f"and {num_more:,} more", "dim")


def _row(request: Request) -> list[Text]:
    """Text, not markup: a tenant may be called anything."""
    cells = (request.worker_id, str(request.slot), request.request_id[:14], str(request.priority))
    numbers = (
        f"{request.num_prompt_tokens:,} + {request.num_output_tokens:,}",
        f"{request.num_blocks:,}",
        f"{request.num_cached_tokens:,}",
        f"{request.num_preemptions:,}",
        _ms(request.age_ms),
    )
    phase = Text(request.phase, PHASE_STYLES.get(request.phase, ""))
    return [*map(Text, (*cells, request.tenant or "-")), phase, _bar(request), *map(Text, numbers)]


def _bar(request: Request) -> Text:
    """A bar of how far a request is: in its prompt while that is computed, in its output after that."""
    done, of = request.num_computed_tokens, request.num_prompt_tokens
    if request.num_output_tokens:
        done, of = request.num_output_tokens, request.max_output_tokens
    filled = min(round(BAR_CHARS * done / max(of, 1)), BAR_CHARS)
    return Text.assemble(("━" * filled, "blue"), ("─" * (BAR_CHARS - filled), "bright_black"))


def _table(words: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in words:
        table.add_column(head, no_wrap=True)
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _times(found: Percentiles) -> str:
    return f"p50 {_ms(found.p50_ms)}, p99 {_ms(found.p99_ms)}" if found.num_samples else "-"


def _ms(value: float) -> str:
    return f"{value / 1e3:,.1f} s" if value >= 1000 else f"{value:.0f} ms"
