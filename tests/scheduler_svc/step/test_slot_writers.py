"""What a slot is doing is written in one place (`SlotTable`); everybody else asks it by name, and reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CORE = Path(__file__).resolve().parents[3] / "scheduler_svc" / "core"
COLUMNS = {"state", "paused", "active_priority"}
LISTS = {
    *("prefilling", "settling", "preempted", "prepared", "displaced", "held", "refused", "releasing"),
    *("rest_changes", "aside", "wanted_drafts", "num_running", "free_slots", "decode_tokens", "has_drafts"),
}
CHANGES = {"append", "remove", "insert", "extend", "clear", "pop", "sort", "update", "__setitem__"}
OWNERS = {"table", "slots"}
"""Names under which a table is at hand; a tenant's account, or a step, has lists of the same names."""


def writes(source: str) -> Iterator[str]:
    """`name, line N` for each change of a slot's situation."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    yield from _named(
                        part.value if isinstance(part, ast.Subscript) else part, COLUMNS | LISTS
                    )
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES
        ):
            yield from _named(node.func.value, LISTS)


def _named(node: ast.expr, names: set[str]) -> Iterator[str]:
    if not isinstance(node, ast.Attribute) or node.attr not in names:
        return
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    if name in OWNERS:
        yield f"{node.attr}, line {node.lineno}"


def test_writes_are_seen() -> None:
    source = "table.state[slot] = 1\nworker.table.held.append(2)\na, table.paused[s] = 1, 2\nstep.prepared.append(1)"
    assert sorted(write.partition(",")[0] for write in writes(source)) == ["held", "paused", "state"]


def test_nobody_but_the_table_writes_what_a_slot_is_doing() -> None:
    found = [
        f"{path.relative_to(CORE)}: {write}"
        for path in sorted(CORE.rglob("*.py"))
        for write in writes(path.read_text())
    ]
    assert found == []
