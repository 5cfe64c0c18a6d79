"""`python -m scheduler_svc`, also installed as `scheduler-svc`."""

from scheduler_svc.config import SchedulerSettings
from scheduler_svc.server import serve
from signalbox.runtime import process


def main() -> None:
    """Runs the scheduler service."""
    process.run("scheduler", SchedulerSettings, serve)


if __name__ == "__main__":
    main()
