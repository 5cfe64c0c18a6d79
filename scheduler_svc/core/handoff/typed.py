"""Hand-offs by the types of what they name."""

from __future__ import annotations

from scheduler_svc.core.handoff.handoff import HandoffOf
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.worker import Worker

Handoff = HandoffOf[Request, Worker]
