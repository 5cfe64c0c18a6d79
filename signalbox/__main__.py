"""`python -m signalbox` is the command line."""

from signalbox.runtime.start import interpreter


def run() -> int:
    """Runs the command that the process was started with; the exit status."""
    interpreter.leave_working_directory()
    from signalbox.cli.main import main  # noqa: PLC0415

    return main()


raise SystemExit(run())
