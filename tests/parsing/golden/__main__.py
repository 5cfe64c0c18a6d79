"""`python -m tests.parsing.golden`: which files would change; with `--write` they do."""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.parsing.golden.features import features_of
from tests.parsing.golden.models import MODELS
from tests.parsing.golden.record import make_golden, make_prompt, path_of


def main() -> int:
    """0 if no file differs, or all are written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    return asyncio.run(compare(writes=args.write))


async def compare(*, writes: bool) -> int:
    num_changed = 0
    for model in MODELS.values():
        for name, feature in features_of(model).items():
            path = path_of(model, name)
            text = make_golden(model, feature, *await make_prompt(model, feature)).write()
            if path.is_file() and path.read_text() == text:
                continue
            num_changed += 1
            print(path)
            if writes:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    return 1 if num_changed and not writes else 0


if __name__ == "__main__":
    sys.exit(main())
