"""What `/metrics` of the relay tells: read from the link when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from signalbox.telemetry import attributes as names
from signalbox.telemetry.metrics_server import Samples, counter, gauge
from worker_svc.relay.scheduler_link import SharedSchedulerLink


def read(link: SharedSchedulerLink) -> Iterator[Metric]:
    """The state as it is now. `up` is to the scheduler."""
    up, down = link.up, link.down
    waiting_up, waiting_down = link.waiting()
    yield gauge(
        names.METRIC_RELAY_LINKED, "Whether the scheduler's link is up.", [({}, float(link.is_attached))]
    )
    yield counter(
        names.METRIC_RELAY_ATTACHMENTS, "How often the scheduler's link came up.", [({}, link.num_attached)]
    )
    yield gauge(names.METRIC_RELAY_WORKERS, "Workers with a link.", [({}, link.num_workers)])
    yield counter(names.METRIC_RELAY_LINKS, "Links that workers have opened.", [({}, link.num_opened)])
    yield counter(
        names.METRIC_RELAY_MESSAGES,
        "Messages on the scheduler's link.",
        _directed(up.num_messages, down.num_messages),
    )
    yield counter(
        names.METRIC_RELAY_ENTRIES,
        "What they carried: messages of workers and to workers, and ends of links.",
        _directed(up.num_entries, down.num_entries),
    )
    yield gauge(
        names.METRIC_RELAY_WAITING,
        "Messages of workers and to workers that wait to be sent.",
        _directed(waiting_up, waiting_down),
    )


def _directed(up: int, down: int) -> Samples:
    return [({"direction": "up"}, up), ({"direction": "down"}, down)]
