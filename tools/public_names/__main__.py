"""Prints or writes the list of public names.

    python -m tools.public_names            # prints it
    python -m tools.public_names --write    # writes tests/public_names.txt

`--write` adds and removes lines. It fails, and writes nothing, if a name has gone that docs/removed.md does not list. A
renamed setting, metric or command keeps its old name beside the new one, with a warning, until the release after the
next tag.
"""

from __future__ import annotations

import argparse
import sys

from tools.public_names.listing import LIST, collect, read_list, unexplained


def main() -> None:
    """Prints the names, or writes them to their file."""
    parser = argparse.ArgumentParser(prog="python -m tools.public_names", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name} instead of printing")
    is_written = parser.parse_args().write
    names = collect()
    if not is_written:
        sys.stdout.writelines(f"{name}\n" for name in names)
        return
    missing = unexplained(read_list(), names)
    if missing:
        sys.exit("these names are gone, and docs/removed.md does not list them:\n  " + "\n  ".join(missing))
    LIST.write_text("".join(f"{name}\n" for name in names))


if __name__ == "__main__":
    main()
