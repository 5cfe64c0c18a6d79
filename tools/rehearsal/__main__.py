"""Rehearses a deployment on this machine (Linux): runs what the rendered manifests of an overlay say.

    python -m tools.rehearsal --overlay cpu-demo

Commands, environment, ports, user, probes, preStop and grace periods come from `kubectl kustomize`; none is written
again here. A pod is one process with a loopback address of its own, so ports stay as they are. Replaced are only hosts
(names of Services and pods, 0.0.0.0) and paths (of volumes, and of the model that the Dockerfile puts into images).
Images, limits on CPU, scheduling and DNS are not rehearsed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from signalbox.cli.main import INTERRUPTED
from signalbox.errors import SignalboxError
from tools.rehearsal.cluster import OVERLAYS, RehearsalError
from tools.rehearsal.rehearse import rehearse
from tools.rehearsal.running import say


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.rehearsal",
        description="Start the services as the rendered manifests say, and send requests.",
    )
    overlays = sorted(path.name for path in OVERLAYS.iterdir())
    parser.add_argument("--overlay", choices=overlays, default="cpu-demo", help="(%(default)s)")
    overlay = parser.parse_args().overlay
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="rehearse-"))
    # Other users have volumes in it.
    directory.chmod(0o755)
    status = _run(overlay, directory)
    if status != 1 or not any(directory.glob("*.log")):
        shutil.rmtree(directory)
    return status


def _run(overlay: str, directory: Path) -> int:
    """What goes wrong becomes one sentence on stderr; the logs stay then."""
    try:
        rehearse(OVERLAYS / overlay, directory)
    except (RehearsalError, SignalboxError) as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    say(f"the overlay {overlay} works")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
