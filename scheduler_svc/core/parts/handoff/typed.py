"""Hand-offs by the types of what they name."""

from __future__ import annotations

from scheduler_svc.core.state.requests.handoff import HandoffOf
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker

Handoff = HandoffOf[Request, Worker]
