"""`scheduler-svc`, or `python -P -m scheduler_svc`."""

from signalbox.runtime.start import interpreter


def main() -> None:
    """Runs the scheduler service."""
    interpreter.leave_working_directory()

    from scheduler_svc.config import SchedulerSettings  # noqa: PLC0415
    from scheduler_svc.server import serve  # noqa: PLC0415
    from signalbox.runtime import process  # noqa: PLC0415

    process.run("scheduler", SchedulerSettings, serve)


if __name__ == "__main__":
    main()
