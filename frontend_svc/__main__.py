"""`frontend-svc`, or `python -P -m frontend_svc`."""

from __future__ import annotations

import os

from signalbox.runtime.start import interpreter


def main() -> None:
    """Runs the frontend until SIGTERM."""
    interpreter.leave_working_directory()
    # Anybody who reaches the gRPC port could fill the log: its core writes a line for each header that it cannot parse.
    # It looks at this when it is imported; why a link of ours fails is told by the link.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    from frontend_svc.config import FrontendSettings  # noqa: PLC0415
    from frontend_svc.server import serve  # noqa: PLC0415
    from signalbox.runtime import process  # noqa: PLC0415

    process.run("frontend", FrontendSettings, serve)


if __name__ == "__main__":
    main()
