"""`python -m tests.parsing.run --cases 100000`: generated outputs for every parser, with a line of results for each.

The outputs of a parser are shared out among the ways in which its models write, as `FAMILIES` has them.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time

from tests.parsing.generator import KINDS, Generator, check
from tests.parsing.writers import FAMILIES


def main() -> int:
    """0 if no case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="of each parser")
    parser.add_argument("--seed", default="0")
    parser.add_argument("parsers", nargs="*", help="none: all of them")
    args = parser.parse_args()
    gc.freeze()
    failed = 0
    for name in args.parsers or dict.fromkeys(family.tools for family in FAMILIES.values()):
        ways = [way for way, family in FAMILIES.items() if family.tools == name]
        for way in ways:
            began, num_cases = time.process_time(), -(-args.cases // len(ways))
            wrong = run_family(way, num_cases, args.seed)
            failed += wrong
            took = time.process_time() - began
            print(f"{name} ({way}): {num_cases} outputs, {wrong} wrong, {took:.0f} s of a core", flush=True)
    return 1 if failed else 0


def run_family(name: str, num_cases: int, seed: str) -> int:
    """How many cases failed; the first one is printed."""
    family, draw = FAMILIES[name], random.Random(seed)
    generator = Generator(family, f"{seed} {name}")
    wrong = 0
    for index in range(num_cases):
        case = generator.case(KINDS[index % len(KINDS)])
        try:
            check(family, case, draw)
        except Exception as error:
            if not wrong:
                written = "".join(u if isinstance(u, str) else f"⟦{u.text}⟧" for u in case.units)
                print(f"{name}: {case.kind}, case {index}: {error!r}\n{written}\n", file=sys.stderr)
            wrong += 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
