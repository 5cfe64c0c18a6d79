"""`python -P -m worker_svc.relay`."""

from signalbox.runtime import process
from worker_svc.relay.config import RelaySettings
from worker_svc.relay.server import serve


def main() -> None:
    """Runs the relay service."""
    process.run("relay", RelaySettings, serve)


if __name__ == "__main__":
    main()
