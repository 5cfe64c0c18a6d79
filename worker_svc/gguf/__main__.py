"""`python -m worker_svc.gguf FILE DIR`: makes a model directory of a GGUF file, or of one of its parts.

For `signalbox pull` and `up`, which import no service: what goes wrong is one sentence on stderr, with exit status 1.
"""

import sys
from pathlib import Path

from worker_svc.gguf.conversion import convert
from worker_svc.gguf.errors import GgufError


def main() -> int:
    """Converts, and returns the exit status."""
    source, target = map(Path, sys.argv[1:])
    try:
        convert(source, target)
    except GgufError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"cannot write {target}: {error.strerror}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
