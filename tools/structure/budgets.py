"""The file of budgets: the most that each count may be. Budgets fall with their counts, and rise by hand only."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PATH = Path("tools/budgets.toml")
"""From the root of a checkout."""
TIGHTEN = "python -m tools.structure --tighten"
HEAD = f"""\
# The most that each count of `python -m tools.structure` may be. `{TIGHTEN}` lowers budgets to the
# counts. A budget is raised by a commit that changes only this file, and whose body gives the measured reason.
"""


def read_budgets(text: str) -> dict[str, int]:
    """Budgets by dotted name. Raises ValueError for a text that is no file of budgets."""
    return dict(_flat("", tomllib.loads(text)))


def _flat(path: str, table: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{path}{name}.", value)
        elif isinstance(value, int):
            yield path + name, value
        else:
            raise ValueError(f"{path}{name} is {value!r}, and no number")


def write_budgets(budgets: Mapping[str, int], head: str = HEAD) -> str:
    """The text of the file, which begins with `head`. Names have two parts, or four: of these the last three stand in
    one line."""
    sections: dict[str, list[str]] = {}
    lines: dict[tuple[str, str], list[str]] = {}
    for name, value in budgets.items():
        match name.split("."):
            case [section, count]:
                sections.setdefault(section, []).append(f"{count} = {value}")
            case [first, second, line, count]:
                lines.setdefault((f"{first}.{second}", line), []).append(f"{count} = {value}")
            case _:
                raise ValueError(f"{name} has neither two parts nor four")
    for (section, line), counts in lines.items():
        sections.setdefault(section, []).append(f"{line} = {{ {', '.join(counts)} }}")
    return head + "".join(f"\n[{name}]\n" + "\n".join(rows) + "\n" for name, rows in sections.items())


def complaints(counts: Mapping[str, int], budgets: Mapping[str, int], tighten: str = TIGHTEN) -> list[str]:
    """One sentence for each count that is not its budget, and for each name that is on one side only; `tighten` is the
    command that lowers budgets."""
    found = []
    for name, count in counts.items():
        budget = budgets.get(name)
        if budget is None:
            found.append(f"{name} has no budget: {tighten}")
        elif count > budget:
            found.append(f"{name} is {count}, above its budget of {budget}")
        elif count < budget:
            found.append(f"{name} is {count}, below its budget of {budget}: {tighten}")
    return found + [
        f"{name} has a budget and is not counted: {tighten}" for name in budgets.keys() - counts.keys()
    ]


def tightened(counts: Mapping[str, int], budgets: Mapping[str, int]) -> dict[str, int]:
    """Budgets that are no higher than their counts, and than they were; new counts get theirs."""
    return {name: min(count, budgets.get(name, count)) for name, count in counts.items()}
