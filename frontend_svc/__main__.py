"""`frontend-svc`, or `python -m frontend_svc`."""

from __future__ import annotations

from frontend_svc.config import FrontendSettings
from frontend_svc.server import serve
from signalbox.runtime import process


def main() -> None:
    """Runs the frontend until SIGTERM."""
    process.run("frontend", FrontendSettings, serve)


if __name__ == "__main__":
    main()
